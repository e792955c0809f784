package checkpoint

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/viewtest"
	"tallystick/query/refusal"
)

func save(l *viewtest.Log, c Checkpoint) string {
	l.TB.Helper()
	return ID(l.Add(viewtest.One(NewOp(l.Author, c)))[0].Hash)
}

func resume(l *viewtest.Log, q ResumeQuery) (r Resumed, err error) {
	l.TB.Helper()
	l.Read(func(s oplog.Snapshot) error {
		r, err = Resume(s, q)
		return nil
	})
	return r, err
}

// TestC9_Resume is the table of checkpoint_resume: only true absence converts.
func TestC9_Resume(t *testing.T) {
	l := viewtest.New(t, "mac", View{})
	for _, on := range []string{"", MissingError} {
		_, err := resume(l, ResumeQuery{Namespace: "a", OnMissing: on})
		if refusal.CodeOf(err) != refusal.NotFound || !strings.Contains(err.Error(), "no checkpoint found") {
			t.Errorf("on_missing %q: %v", on, err)
		}
	}
	if r, err := resume(l, ResumeQuery{Namespace: "a", OnMissing: MissingEmpty}); err != nil || r.Found {
		t.Errorf("on_missing empty: %+v %v", r, err)
	}
	for _, on := range []string{"Empty", "EMPTY", " empty", "null", "none"} {
		_, err := resume(l, ResumeQuery{Namespace: "a", OnMissing: on})
		var e *refusal.Error
		if !errors.As(err, &e) || e.Field != "on_missing" || len(e.Allowed) != 2 {
			t.Errorf("on_missing %q: %v", on, err)
		}
	}
	first := save(l, Checkpoint{Namespace: "a", State: `{"messages":[1,2,3]}`, Branch: "main", BaseCommit: "abc123"})
	for _, on := range []string{"", MissingError, MissingEmpty} {
		r, err := resume(l, ResumeQuery{Namespace: "a", OnMissing: on})
		if err != nil || !r.Found || r.Record.ID != first || r.Record.Raw != `{"messages":[1,2,3]}` || *r.Record.MessageCount != 3 ||
			r.Record.Branch != "main" || r.Record.BaseCommit != "abc123" || len(r.Others) != 0 {
			t.Errorf("on_missing %q: %+v %v", on, r, err)
		}
	}
	// corruption is no absence
	l.Read(func(s oplog.Snapshot) error {
		_, err := Resume(damaged{s}, ResumeQuery{Namespace: "a", OnMissing: MissingEmpty})
		if err == nil || refusal.CodeOf(err) != "" {
			t.Errorf("a damaged record under on_missing empty: %v", err)
		}
		return nil
	})
	second := save(l, Checkpoint{Namespace: "a"})
	if r, err := resume(l, ResumeQuery{Namespace: "a"}); err != nil || r.Record.ID != second || r.Record.State != nil || r.Record.MessageCount != nil || len(r.Others) != 0 {
		t.Errorf("the second save: %+v %v", r, err)
	}
	if r, err := resume(l, ResumeQuery{Namespace: "a", ID: first}); err != nil || r.Record.ID != first {
		t.Errorf("by id: %+v %v", r, err)
	}
	if r, err := resume(l, ResumeQuery{Namespace: "a", Branch: "main"}); err != nil || r.Record.ID != first {
		t.Errorf("by branch: %+v %v", r, err)
	}
	for name, q := range map[string]ResumeQuery{
		"branch": {Namespace: "a", Branch: "dev"}, "namespace": {Namespace: "A"}, "padded": {Namespace: "a "}, "id elsewhere": {Namespace: "b", ID: first},
		"id of another branch": {Namespace: "a", Branch: "dev", ID: first}, "unknown id": {Namespace: "a", ID: "chk_0123456789abcdef"},
	} {
		if _, err := resume(l, q); refusal.CodeOf(err) != refusal.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// damaged is a snapshot whose entries are not what they were.
type damaged struct{ oplog.Snapshot }

func (d damaged) Entry(ref oplog.Ref) (oplog.Entry, error) {
	e, err := d.Snapshot.Entry(ref)
	e.Body = []byte{0xc1}
	return e, err
}

// TestSaveArguments is the table of checkpoint_save: a state that is not a
// string holding a JSON object is an error, never dropped.
func TestSaveArguments(t *testing.T) {
	for raw, field := range map[string]string{
		`{"agent_id":"a","state":{}}`:                                                  "state",
		`{"agent_id":"a","state":{"x":1}}`:                                             "state",
		`{"agent_id":"a","state":null}`:                                                "state",
		`{"agent_id":"a","state":[]}`:                                                  "state",
		`{"agent_id":"a","state":7}`:                                                   "state",
		`{"agent_id":"a","state":""}`:                                                  "state",
		`{"agent_id":"a","state":" "}`:                                                 "state",
		`{"agent_id":"a","state":"null"}`:                                              "state",
		`{"agent_id":"a","state":"[]"}`:                                                "state",
		`{"agent_id":"a","state":"7"}`:                                                 "state",
		`{"agent_id":"a","state":"{"}`:                                                 "state",
		`{"agent_id":"a","state":"{} {}"}`:                                             "state",
		`{"agent_id":"a","state":"{\"x\":\"\\u0000\"}"}`:                               "state",
		`{"agent_id":"a","state":"{\"x\":\"\\ud800\"}"}`:                               "state",
		`{"agent_id":"a","state":"{\"x\":\"` + strings.Repeat("x", MaxState) + `\"}"}`: "state",
		`{"state":"{}"}`:                                                               "agent_id",
		`{"agent_id":"","state":"{}"}`:                                                 "agent_id",
		`{"agent_id":" \t","state":"{}"}`:                                              "agent_id",
		`{"agent_id":null}`:                                                            "agent_id",
		`{"agent_id":["a"]}`:                                                           "agent_id",
		`{"agent_id":"a","branch":"x\ny"}`:                                             "branch",
		`{"agent_id":"a","base_commit":1}`:                                             "base_commit",
		`{"agent_id":"a","State":"{}"}`:                                                "State",
	} {
		var e *refusal.Error
		if _, err := ParseSave([]byte(raw), ""); !errors.As(err, &e) || e.Field != field || e.Hint == "" {
			t.Errorf("%.60s: %v, want %s", raw, err, field)
		}
	}
	c, err := ParseSave([]byte(`{"state":" {\"a\": 1 } ","branch":"main","base_commit":"abc"}`), "own")
	if err != nil || c.Namespace != "own" || c.State != ` {"a": 1 } ` || c.Branch != "main" || c.BaseCommit != "abc" {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := NewOp("", Checkpoint{Namespace: "a"}); refusal.CodeOf(err) != refusal.IdentityUnbound {
		t.Errorf("unbound: %v", err)
	}
	for raw, field := range map[string]string{
		`{"agent_id":"a","on_missing":"Empty"}`: "on_missing", `{"agent_id":"a","on_missing":null}`: "on_missing", `{}`: "agent_id",
		`{"agent_id":"a","id":"x"}`: "id", `{"agent_id":"a","x":1}`: "x",
	} {
		var e *refusal.Error
		if _, err := ParseResume([]byte(raw), ""); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v, want %s", raw, err, field)
		}
	}
	if q, err := ParseResume([]byte(`{"agent_id":"a","on_missing":""}`), ""); err != nil || q.Namespace != "a" {
		t.Errorf("%+v %v", q, err)
	}
}

// TestTravels: saved on one host, resumed on another with branch and base
// commit; saved on both in a partition, the later one is the latest on both
// and the other is named, until somebody who knew both saves.
func TestTravels(t *testing.T) {
	a, b := viewtest.New(t, "mac", View{}), viewtest.New(t, "nas", View{})
	save(a, Checkpoint{Namespace: "x", State: `{"n":1}`, Branch: "main", BaseCommit: "c0ffee"})
	viewtest.Meet(a, b)
	r, err := resume(b, ResumeQuery{Namespace: "x"})
	if err != nil || r.Record.Branch != "main" || r.Record.BaseCommit != "c0ffee" || r.Record.Author != a.Author {
		t.Fatalf("%+v %v", r, err)
	}
	b.Later(500)
	earlier, later := save(a, Checkpoint{Namespace: "x", State: `{"n":2}`}), save(b, Checkpoint{Namespace: "x", State: `{"n":3}`})
	viewtest.Meet(a, b)
	for _, l := range []*viewtest.Log{a, b} {
		r, err := resume(l, ResumeQuery{Namespace: "x"})
		if err != nil || r.Record.ID != later || len(r.Others) != 1 || r.Others[0].ID != earlier || r.Others[0].Raw != "" || r.Others[0].State != nil {
			t.Errorf("%s: %+v %v", l.Author, r, err)
		}
	}
	if a.Digest() != b.Digest() {
		t.Error("views differ")
	}
	if r, err := resume(b, ResumeQuery{Namespace: "x", ID: earlier}); err != nil || r.Record.Raw != `{"n":2}` {
		t.Errorf("the other save: %+v %v", r, err)
	}
	a.Later(5000)
	newest := save(a, Checkpoint{Namespace: "x", State: `{"n":4}`})
	if r, _ := resume(a, ResumeQuery{Namespace: "x"}); r.Record.ID != newest || len(r.Others) != 1 {
		t.Errorf("the lost side is no longer named, although nobody resumed it: %+v", r)
	}
}

func TestListPages(t *testing.T) {
	l := viewtest.New(t, "mac", View{})
	for i := range 23 {
		save(l, Checkpoint{Namespace: "x", State: fmt.Sprintf(`{"n":%d}`, i), Branch: []string{"main", "dev"}[i%2]})
	}
	for branch, want := range map[string]int{"": 23, "main": 12, "dev": 11, "no": 0} {
		var got []string
		f := Filter{Namespace: "x", Branch: branch, Limit: 5}
		for {
			var p Page
			l.Read(func(s oplog.Snapshot) (err error) {
				p, err = List(s, f)
				return err
			})
			for _, c := range p.Checkpoints {
				got = append(got, c.Raw)
			}
			if f.Cursor = p.NextCursor; !p.HasMore {
				break
			}
		}
		if len(got) != want || want > 0 && branch == "" && (got[0] != `{"n":22}` || got[22] != `{"n":0}`) {
			t.Errorf("branch %q: %q", branch, got)
		}
	}
	l.Read(func(s oplog.Snapshot) error {
		for field, f := range map[string]Filter{"limit": {Namespace: "x", Limit: 1e9}, "agent_id": {}, "cursor": {Namespace: "x", Cursor: "zz"}} {
			_, err := List(s, f)
			if e, ok := err.(*refusal.Error); !ok || e.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		return nil
	})
}

func key(n int) imported.Key {
	return imported.Key{Source: "tally", ID: fmt.Sprintf("chk_%016x", n), Part: "checkpoint"}
}

// TestM3_TwoImportsAreOne: two hosts read one export in before they meet, and
// one goes on from what it read. Afterwards each checkpoint is there once, the
// copies are listed, and nothing is said to have been saved apart.
func TestM3_TwoImportsAreOne(t *testing.T) {
	a, b := viewtest.New(t, "mac", View{}), viewtest.New(t, "nas", View{})
	var ids [2][]string
	b.Later(2) // its copies do not count
	for i, l := range []*viewtest.Log{a, b} {
		for n := range 3 {
			ids[i] = append(ids[i], save(l, Checkpoint{Namespace: "x", State: fmt.Sprintf(`{"n":%d}`, n), Branch: "main", Import: key(n), Author: "old:a:p", At: "2026-01-02"}))
			l.Later(5)
		}
	}
	b.Later(1000)
	last := save(b, Checkpoint{Namespace: "x", State: `{"n":9}`})
	viewtest.Meet(a, b)
	if a.Digest() != b.Digest() {
		t.Error("views differ")
	}
	for _, l := range []*viewtest.Log{a, b} {
		r, err := resume(l, ResumeQuery{Namespace: "x"})
		if err != nil || r.Record.ID != last || len(r.Others) != 0 {
			t.Errorf("%s: %+v %v", l.Author, r, err)
		}
		l.Read(func(s oplog.Snapshot) error {
			p, err := List(s, Filter{Namespace: "x"})
			if err != nil || p.Count != 4 || p.Checkpoints[1].Raw != `{"n":2}` || p.Checkpoints[1].By != "old:a:p" || p.Checkpoints[1].At != "2026-01-02" || *p.Checkpoints[1].Imported != key(2) {
				t.Errorf("%s: %+v %v", l.Author, p, err)
			}
			if p, err := List(s, Filter{Namespace: "x", Branch: "main"}); err != nil || p.Count != 3 {
				t.Errorf("%s: of the branch %+v %v", l.Author, p, err)
			}
			copies, _, err := CopyPage(s, nil, 10)
			if err != nil || len(copies) != 3 {
				t.Errorf("%s: %d copies, %v", l.Author, len(copies), err)
			}
			forks, _, err := ForkPage(s, nil, 10)
			if err != nil || len(forks) != 0 {
				t.Errorf("%s: saved apart %+v, %v", l.Author, forks, err)
			}
			if _, ok, err := Imported(s, key(1)); err != nil || !ok {
				t.Errorf("%s: %v %v", l.Author, ok, err)
			}
			if _, ok, err := Imported(s, key(7)); err != nil || ok {
				t.Errorf("%s: %v %v", l.Author, ok, err)
			}
			return nil
		})
		for _, list := range ids { // both ids of one name the one that counts
			if r, err := resume(l, ResumeQuery{Namespace: "x", ID: list[1]}); err != nil || r.Record.Raw != `{"n":1}` {
				t.Errorf("%s: by id %+v %v", l.Author, r, err)
			}
		}
	}
	if _, err := NewOp("mac:a:p", Checkpoint{Namespace: "x", Author: "old:a:p"}); err == nil {
		t.Error("an author of a checkpoint that is not imported")
	}
}

func TestM1_AnyOrderAnySplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		logs := []*viewtest.Log{viewtest.New(t, "red", View{}), viewtest.New(t, "blue", View{})}
		for n := rapid.IntRange(1, 20).Draw(rt, "steps"); n > 0; n-- {
			l := logs[rapid.IntRange(0, 1).Draw(rt, "log")]
			l.Later(int64(rapid.IntRange(0, 4).Draw(rt, "later")))
			if rapid.IntRange(0, 4).Draw(rt, "meet") == 0 {
				viewtest.Meet(logs[0], logs[1])
			}
			c := Checkpoint{Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "ns"), Branch: rapid.SampledFrom([]string{"", "main"}).Draw(rt, "branch")}
			if n := rapid.SampledFrom([]int{1, 0, 2, 0}).Draw(rt, "import"); n > 0 {
				c.Import = key(n)
			}
			save(l, c)
		}
		logs[0].Pull(logs[1], rapid.SampledFrom([]int{1, 400, 1 << 20}).Draw(rt, "piece"))
		logs[1].Pull(logs[0], 1<<20)
		if logs[0].Digest() != logs[1].Digest() {
			rt.Fatal("views differ")
		}
		entries := logs[0].Entries()
		want, err := viewtest.Fold(View{}, entries)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := viewtest.Fold(View{}, rapid.Permutation(entries).Draw(rt, "order"))
		if err != nil {
			rt.Fatal(err)
		}
		if diff := viewtest.Same(want, got); diff != "" {
			rt.Fatal(diff)
		}
		for _, l := range logs {
			l.Close()
		}
	})
}

func sample() Checkpoint {
	return Checkpoint{Namespace: "a", State: `{"n":1}`, Branch: "main", BaseCommit: "c0ffee"}
}

func TestL8_GoldenBytes(t *testing.T) {
	s := sample()
	const want = "95a161a77b226e223a317da46d61696ea6633066666565c0"
	if got := hex.EncodeToString(s.encode()); got != want {
		t.Errorf("a checkpoint is %s, was %s", got, want)
	}
	s.Import, s.Author, s.At = imported.Key{Source: "tally", ID: "chk_1", Part: "p"}, "a:b:c", "2026"
	const in = "98a161a77b226e223a317da46d61696ea6633066666565c093a574616c6c79a563686b5f31a170a5613a623a63a432303236"
	if got := hex.EncodeToString(s.encode()); got != in {
		t.Errorf("an imported checkpoint is %s, was %s", got, in)
	}
}

func TestL6_Quarantine(t *testing.T) {
	change := func(fn func(c *Checkpoint)) []byte { s := sample(); fn(&s); return s.encode() }
	for name, body := range map[string][]byte{
		"blank namespace": change(func(c *Checkpoint) { c.Namespace = " " }),
		"no object":       change(func(c *Checkpoint) { c.State = "[]" }),
		"no JSON":         change(func(c *Checkpoint) { c.State = "{" }),
		"control":         change(func(c *Checkpoint) { c.Branch = "a\nb" }),
		"long":            change(func(c *Checkpoint) { c.State = `{"x":"` + strings.Repeat("x", MaxState) + `"}` }),
		"truncated":       change(func(*Checkpoint) {})[:7],
		"nil":             {0xc0},
		"no key":          append(append([]byte{0x98}, change(func(*Checkpoint) {})[1:]...), 0xc0, 0xa0, 0xa0),
		"bad key":         change(func(c *Checkpoint) { c.Import = imported.Key{Source: "a\n", ID: "b", Part: "c"} }),
	} {
		e := oplog.Entry{Header: oplog.Header{Kind: Kind, Author: "a:b:c"}, Body: body}
		var q *oplog.QuarantineError
		if err := (View{}).Apply(viewtest.Rows{}, &e); !errors.As(err, &q) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzPayload(f *testing.F) {
	s := sample()
	f.Add(s.encode())
	s.Import, s.Author = key(1), "a:b:c"
	f.Add(s.encode())
	f.Add([]byte(`{"agent_id":"a","state":"{}"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decode(b); err == nil && !bytes.Equal(c.encode(), b) {
			t.Errorf("%x encodes as %x", b, c.encode())
		}
		if c, err := ParseSave(b, "own"); err == nil {
			if _, err := NewOp("mac:a:p", c); err != nil {
				t.Errorf("%q is valid but makes no op: %v", b, err)
			}
		}
		_, _ = ParseResume(b, "own")
	})
}
