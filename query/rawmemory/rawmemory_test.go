package rawmemory

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tallystick/oplog"
	"tallystick/query/document"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/internal/viewtest"
	"tallystick/query/refusal"
)

var all = identity.Filter{All: true}

func of(id string) identity.Filter { return identity.Filter{Identity: id} }

func add(l *viewtest.Log, t Turn) string {
	l.TB.Helper()
	return ID(l.Add(viewtest.One(NewOp(l.Author, t)))[0].Ref)
}

// foreign appends a payload that a local caller could not write.
func foreign(l *viewtest.Log, t Turn) string {
	l.TB.Helper()
	return ID(l.Add([]oplog.Op{{Kind: Kind, Author: l.Author, Body: t.encode()}}, nil)[0].Ref)
}

func turn(session, text string, ids ...string) Turn {
	return Turn{Session: session, Prompt: text, Thought: "secret " + text, Response: "re " + text, ToolCalls: -1, Identities: ids}
}

func session(l *viewtest.Log, q SessionQuery) (p SessionPage) {
	l.TB.Helper()
	l.Read(func(s oplog.Snapshot) (err error) {
		p, err = Session(s, q)
		return err
	})
	return p
}

func recent(l *viewtest.Log, q RecentQuery) (p RecentPage) {
	l.TB.Helper()
	l.Read(func(s oplog.Snapshot) (err error) {
		p, err = Recent(s, q)
		return err
	})
	return p
}

func prompts(list []Record) (out []string) {
	for _, r := range list {
		out = append(out, r.Prompt)
	}
	return out
}

// TestAgentIdentity is the one rule on both readings: whole tokens of
// sourceAgentIdentities, case-sensitive.
func TestAgentIdentity(t *testing.T) {
	l := viewtest.New(t, "mac", View{})
	add(l, turn("s", "1", "a"))
	add(l, turn("s", "2", "@ab"))
	add(l, turn("s", "3", "@a", "b", "@b"))
	add(l, turn("s", "4"))
	add(l, turn("s", "5", []string{}...)) // nobody known
	add(l, Turn{Session: "s", Prompt: "6", Identities: []string{}})
	for _, c := range []struct {
		f    identity.Filter
		want []string
	}{
		{of("a"), []string{"1", "3"}}, {of("ab"), []string{"2"}}, {of("b"), []string{"3"}}, {of("A"), nil}, {of("zz"), nil},
		{of(l.Author), []string{"4"}}, {all, []string{"1", "2", "3", "4", "5", "6"}},
	} {
		p := session(l, SessionQuery{Session: "s", Filter: c.f})
		if got := prompts(p.Memories); !slices.Equal(got, c.want) || p.Total != int64(len(c.want)) || p.Count != len(c.want) {
			t.Errorf("%+v: session gives %q, total %d", c.f, got, p.Total)
		}
		r := recent(l, RecentQuery{Filter: c.f})
		got := prompts(r.Turns)
		slices.Reverse(got)
		if !slices.Equal(got, c.want) || r.Total != int64(len(c.want)) {
			t.Errorf("%+v: recent gives %q, total %d", c.f, got, r.Total)
		}
		if (p.Note != "") != (len(c.want) == 0) || (r.Note != "") != (len(c.want) == 0) {
			t.Errorf("%+v: notes %q, %q", c.f, p.Note, r.Note)
		}
	}
	if p := session(l, SessionQuery{Session: "s", Filter: of("mac:agent:pro")}); !strings.Contains(p.Note, l.Author) {
		t.Errorf("no near name in %q", p.Note)
	}
	l.Read(func(s oplog.Snapshot) error {
		if _, err := Session(s, SessionQuery{Session: "s"}); refusal.CodeOf(err) != refusal.InvalidArgument {
			t.Errorf("no filter at all: %v", err)
		}
		if _, err := Recent(s, RecentQuery{}); refusal.CodeOf(err) != refusal.InvalidArgument {
			t.Errorf("no filter at all: %v", err)
		}
		return nil
	})
}

func TestSessionPages(t *testing.T) {
	l := viewtest.New(t, "mac", View{})
	var want []string
	for i := range 230 {
		text := fmt.Sprint(i)
		tn := turn([]string{"s", "other"}[i%2], text)
		tn.Timestamp = "2026-01-02T03:04:05Z" // all at once: the order of writing counts
		add(l, tn)
		if i%2 == 0 {
			want = append(want, text)
		}
	}
	var got []string
	for offset := 0; ; {
		p := session(l, SessionQuery{Session: "s", Filter: all, Offset: offset})
		got = append(got, prompts(p.Memories)...)
		if p.Total != 115 || p.Limit != DefaultLimit {
			t.Fatalf("total %d, limit %d", p.Total, p.Limit)
		}
		if p.NextOffset == nil {
			break
		}
		offset = *p.NextOffset
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages give %q", got)
	}
	if p := session(l, SessionQuery{Session: "s", Filter: all, Offset: 1 << 40}); p.Count != 0 || p.Total != 115 || p.HasMore {
		t.Errorf("beyond the end: %+v", p)
	}
	if p := session(l, SessionQuery{Session: "unknown", Filter: all}); p.Count != 0 || p.Memories == nil || p.Note == "" {
		t.Errorf("an unknown session: %+v", p)
	}
	l.Read(func(s oplog.Snapshot) error {
		for field, q := range map[string]SessionQuery{
			"limit": {Session: "s", Filter: all, Limit: 1e9}, "offset": {Session: "s", Filter: all, Offset: -1}, "sessionId": {Session: " ", Filter: all},
		} {
			_, err := Session(s, q)
			if e, ok := err.(*refusal.Error); !ok || e.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		return nil
	})
}

// TestRecentKeyset: pages of recent turns neither repeat nor skip, equal and
// unreadable timestamps included, while new turns come in.
func TestRecentKeyset(t *testing.T) {
	l := viewtest.New(t, "mac", View{})
	times := []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000+00:00", "no date", "2026-01-02T04:04:05.1+01:00", "", "1969-12-31T23:59:59Z", "31.12.2025"}
	for i := range 57 {
		tn := turn("s", fmt.Sprint(i), "a")
		tn.Timestamp = times[i%len(times)]
		foreign(l, tn)
	}
	var got []string
	q := RecentQuery{Filter: of("a"), Limit: 4}
	for n := 0; ; n++ {
		p := recent(l, q)
		got = append(got, prompts(p.Turns)...)
		if p.Malformed != 16 || p.Total < 57 {
			t.Fatalf("malformed %d, total %d", p.Malformed, p.Total)
		}
		for _, r := range p.Turns {
			if (r.Timestamp == nil) != (r.Prompt != "" && strings.Contains("no date 31.12.2025", times[atoi(r.Prompt)%len(times)]) && times[atoi(r.Prompt)%len(times)] != "") {
				t.Errorf("turn %s has timestamp %v", r.Prompt, r.Timestamp)
			}
		}
		if p.NextBefore == nil {
			break
		}
		q.Before = *p.NextBefore
		fresh := turn("s", "", "a")
		fresh.Prompt = "9" + fmt.Sprint(n+100)
		foreign(l, fresh)
	}
	sorted := slices.Clone(got)
	slices.Sort(sorted)
	if len(got) != 57 || len(slices.Compact(sorted)) != 57 {
		t.Errorf("pages give %d turns, %d different: %q", len(got), len(slices.Compact(sorted)), got)
	}
	if p := recent(l, RecentQuery{Filter: of("a"), Before: Before{Timestamp: "2026-01-02T03:04:05Z"}}); len(p.Turns) == 0 || p.Turns[0].Prompt == "0" {
		t.Errorf("before a bare time: %q", prompts(p.Turns))
	}
	id := recent(l, RecentQuery{Filter: of("a"), Limit: 1}).Turns[0].ID
	l.Read(func(s oplog.Snapshot) error {
		for _, c := range []struct {
			q     RecentQuery
			field string
			code  refusal.Code
		}{
			{RecentQuery{Filter: all, Limit: 101}, "limit", refusal.InvalidArgument},
			{RecentQuery{Filter: all, Limit: -1}, "limit", refusal.InvalidArgument},
			{RecentQuery{Filter: all, Limit: 1e9}, "limit", refusal.InvalidArgument},
			{RecentQuery{Filter: all, Detail: "Full"}, "detail", refusal.InvalidArgument},
			{RecentQuery{Filter: all, Projection: "all"}, "projection", refusal.InvalidArgument},
			{RecentQuery{Filter: all, Before: Before{Timestamp: "yesterday"}}, "before", refusal.InvalidArgument},
			{RecentQuery{Filter: all, Before: Before{ID: "mem_zz"}}, "before", refusal.InvalidArgument},
			{RecentQuery{Filter: all, Before: Before{ID: "mem_0123456789abcdef"}}, "before", refusal.UnknownCursor},
			{RecentQuery{Filter: all, Before: Before{ID: id, Timestamp: "2001-01-01T00:00:00Z"}}, "before", refusal.UnknownCursor},
		} {
			_, err := Recent(s, c.q)
			if e, ok := err.(*refusal.Error); !ok || e.Field != c.field || e.Code != c.code {
				t.Errorf("%+v: %v", c.q, err)
			}
		}
		return nil
	})
}

func atoi(s string) (n int) {
	fmt.Sscan(s, &n)
	return n
}

// TestThoughtsAreTheirOwners: thoughts show in the private projection only,
// and only those of the caller's own turns.
func TestThoughtsAreTheirOwners(t *testing.T) {
	l := viewtest.New(t, "mac", View{})
	add(l, turn("s", "mine", "a"))
	add(l, turn("s", "theirs", "b"))
	for _, c := range []struct {
		detail, projection, caller string
		want                       map[string]bool
	}{
		{DetailFull, ProjectionPrivate, "a", map[string]bool{"mine": true}},
		{DetailFull, ProjectionPrivate, "@a", map[string]bool{"mine": true}},
		{DetailFull, ProjectionPrivate, "", nil},
		{DetailFull, ProjectionPublic, "a", nil},
		{DetailFull, "", "a", nil},
		{DetailSummary, ProjectionPrivate, "a", nil},
	} {
		p := recent(l, RecentQuery{Filter: all, Detail: c.detail, Projection: c.projection, Caller: c.caller})
		for _, r := range p.Turns {
			if (r.Thought != "") != c.want[r.Prompt] {
				t.Errorf("%+v: %s shows thought %q", c, r.Prompt, r.Thought)
			}
			if r.Withheld != (c.projection == ProjectionPrivate && r.Prompt == "theirs" || c.projection == ProjectionPrivate && c.caller == "") {
				t.Errorf("%+v: %s withheld %v", c, r.Prompt, r.Withheld)
			}
		}
	}
	long := strings.Repeat("é", PreviewLength+1)
	add(l, Turn{Session: "s", Prompt: long, Response: long})
	p := recent(l, RecentQuery{Filter: all, Limit: 1})
	if r := p.Turns[0]; !r.Truncated || len([]rune(r.Prompt)) != PreviewLength || len([]rune(r.Response)) != PreviewLength {
		t.Errorf("preview of %d characters, truncated %v", len([]rune(r.Prompt)), r.Truncated)
	}
	if r := recent(l, RecentQuery{Filter: all, Limit: 1, Detail: DetailFull}).Turns[0]; r.Truncated || r.Prompt != long {
		t.Error("full detail is cut")
	}
}

func TestParseAdd(t *testing.T) {
	tn, err := ParseAdd([]byte(`{"prompt":"p","thought":"","response":"r","amountToolCalls":3,"toolsUsed":["x"],"agent":"claude"}`), "bound")
	if err != nil || tn.Session != "bound" || tn.ToolCalls != 3 || tn.Tools[0] != "x" || tn.Agent != "claude" || tn.Identities != nil {
		t.Errorf("%+v %v", tn, err)
	}
	base := `{"prompt":"p","thought":"t","response":"r"`
	for raw, field := range map[string]string{
		`{"thought":"t","response":"r"}`:                                                "prompt",
		`{"prompt":"p","response":"r"}`:                                                 "thought",
		`{"prompt":"p","thought":"t"}`:                                                  "response",
		`{"prompt":null,"thought":"t","response":"r"}`:                                  "prompt",
		`{"prompt":" ","thought":"\n","response":""}`:                                   "prompt",
		base + `,"sessionId":""}`:                                                       "sessionId",
		base + `,"sessionId":"a\nb"}`:                                                   "sessionId",
		base + `,"amountToolCalls":"3"}`:                                                "amountToolCalls",
		base + `,"amountToolCalls":-1}`:                                                 "amountToolCalls",
		base + `,"amountToolCalls":1.5}`:                                                "amountToolCalls",
		base + `,"amountToolCalls":1e18}`:                                               "amountToolCalls",
		base + `,"toolsUsed":"x"}`:                                                      "toolsUsed",
		base + `,"toolsUsed":[" "]}`:                                                    "toolsUsed",
		base + `,"timestamp":""}`:                                                       "timestamp",
		base + `,"timestamp":"yesterday"}`:                                              "timestamp",
		base + `,"timestamp":"2026-02-30T00:00:00Z"}`:                                   "timestamp",
		base + `,"sourceAgentIdentities":["a,b"]}`:                                      "sourceAgentIdentities",
		base + `,"sourceAgentIdentities":["@@a"]}`:                                      "sourceAgentIdentities",
		base + `,"sourceAgentIdentities":["me"]}`:                                       "sourceAgentIdentities",
		base + `,"sourceAgentIdentities":[" a"]}`:                                       "sourceAgentIdentities",
		base + `,"from":"x"}`:                                                           "from",
		base + `,"userId":"x"}`:                                                         "userId",
		`{"prompt":"` + strings.Repeat("x", 10<<20) + `","thought":"t","response":"r"}`: "prompt",
	} {
		var e *refusal.Error
		if _, err := ParseAdd([]byte(raw), "bound"); !errors.As(err, &e) || e.Field != field || e.Hint == "" {
			t.Errorf("%.80s: %v, want %s", raw, err, field)
		}
	}
	if _, err := ParseAdd([]byte(base+`}`), ""); err == nil {
		t.Error("a turn without session passes")
	}
	if _, err := NewOp("", Turn{Session: "s", Prompt: "p"}); refusal.CodeOf(err) != refusal.IdentityUnbound {
		t.Errorf("unbound: %v", err)
	}
}

// TestM1_AnyOrderAnySplit: turns and imports on two logs, folded in any order
// and copied in any pieces.
func TestM1_AnyOrderAnySplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		logs := []*viewtest.Log{viewtest.New(t, "red", View{}), viewtest.New(t, "blue", View{})}
		for n := rapid.IntRange(1, 20).Draw(rt, "steps"); n > 0; n-- {
			l := logs[rapid.IntRange(0, 1).Draw(rt, "log")]
			l.Later(int64(rapid.IntRange(0, 4).Draw(rt, "later")))
			tn := turn(rapid.SampledFrom([]string{"s", "t"}).Draw(rt, "session"), "x", rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(rt, "ids")...)
			tn.Timestamp = rapid.SampledFrom([]string{"", "2026-01-02T03:04:05Z", "never"}).Draw(rt, "time")
			if rapid.Bool().Draw(rt, "import") {
				tn.Import = imported.Key{Source: "s", ID: rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "key"), Part: "turn"}
			}
			foreign(l, tn)
		}
		logs[0].Pull(logs[1], rapid.SampledFrom([]int{1, 900, 1 << 20}).Draw(rt, "piece"))
		logs[1].Pull(logs[0], rapid.SampledFrom([]int{1, 900, 1 << 20}).Draw(rt, "piece"))
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

func TestImportsCountOnce(t *testing.T) {
	a, b := viewtest.New(t, "mac", View{}), viewtest.New(t, "nas", View{})
	key := imported.Key{Source: "s", ID: "1", Part: "turn"}
	row := turn("s", "x", "a")
	row.Import = key
	first := add(a, row)
	b.Later(100)
	row.Prompt = "x changed"
	second := add(b, row)
	viewtest.Meet(a, b)
	p := session(b, SessionQuery{Session: "s", Filter: all})
	if p.Total != 1 || p.Memories[0].ID != first {
		t.Errorf("%+v", p)
	}
	b.Read(func(s oplog.Snapshot) error {
		list, _, err := CopyPage(s, nil, 10)
		if err != nil || len(list) != 1 || ID(list[0].Copy) != second || ID(list[0].Counts) != first {
			t.Errorf("copies %+v, %v", list, err)
		}
		index := map[string]document.State{}
		for _, e := range b.Entries() {
			docs, err := Documents(s, &e)
			if err != nil {
				return err
			}
			for _, d := range docs {
				index[d.ID] = d.State
			}
		}
		if index[first] != document.Live || index[second] != document.Erased {
			t.Errorf("index %v", index)
		}
		return nil
	})
}

// TestReadsCostThePage: pages and counts do not depend on how much there is.
func TestReadsCostThePage(t *testing.T) {
	l := viewtest.New(t, "mac", View{})
	cost := func() (out [2]int) {
		l.Read(func(s oplog.Snapshot) error {
			_, err := Recent(viewtest.Counting{Snapshot: s, Steps: &out[0]}, RecentQuery{Filter: of("a")})
			if err != nil {
				return err
			}
			_, err = Session(viewtest.Counting{Snapshot: s, Steps: &out[1]}, SessionQuery{Session: "s1", Filter: of("a"), Limit: 20})
			return err
		})
		return out
	}
	fill := func(from, to int) {
		for at := from; at < to; {
			var ops []oplog.Op
			for ; at < to && len(ops) < 500; at++ {
				op, err := NewOp(l.Author, turn(fmt.Sprint("s", at%3), fmt.Sprint(at), []string{"a", "b"}[at%2]))
				if err != nil {
					t.Fatal(err)
				}
				ops = append(ops, op)
			}
			l.Add(ops, nil)
		}
	}
	fill(0, 300)
	few := cost()
	fill(300, 10000)
	if many := cost(); many != few {
		t.Errorf("%v steps with 10,000 turns, %v with 300", many, few)
	}
}

func sample() Turn {
	return Turn{
		Session: "s", Prompt: "p", Thought: "t", Response: "r", Agent: "claude", Model: "m", ToolCalls: 2, Tools: []string{"grep"},
		Identities: []string{"a"}, Timestamp: "2026-01-02T03:04:05Z", Import: imported.Key{Source: "x", ID: "1", Part: "turn"},
	}
}

func TestL8_GoldenBytes(t *testing.T) {
	s := sample()
	const want = "9ba173a170a174a172a6636c61756465a16d0291a46772657091a161b4323032362d30312d30325430333a30343a30355a93a178a131a47475726e"
	if got := hex.EncodeToString(s.encode()); got != want {
		t.Errorf("a turn is %s, was %s", got, want)
	}
}

func TestL6_Quarantine(t *testing.T) {
	change := func(fn func(t *Turn)) []byte { s := sample(); fn(&s); return s.encode() }
	for name, body := range map[string][]byte{
		"blank session": change(func(t *Turn) { t.Session = " " }),
		"NUL":           change(func(t *Turn) { t.Thought = "x\x00" }),
		"comma":         change(func(t *Turn) { t.Identities = []string{"a,b"} }),
		"at sign":       change(func(t *Turn) { t.Identities = []string{"@a"} }),
		"twice":         change(func(t *Turn) { t.Identities = []string{"a", "a"} }),
		"long":          change(func(t *Turn) { t.Prompt = strings.Repeat("x", MaxText+1) }),
		"truncated":     sample().encodeCut(10),
		"nil":           {0xc0},
	} {
		e := oplog.Entry{Header: oplog.Header{Kind: Kind, Author: "a:b:c"}, Body: body}
		var q *oplog.QuarantineError
		if err := (View{}).Apply(viewtest.Rows{}, &e); !errors.As(err, &q) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func (t Turn) encodeCut(n int) []byte { return t.encode()[:n] }

func FuzzPayload(f *testing.F) {
	s := sample()
	f.Add(s.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if tn, err := decode(b); err == nil && !bytes.Equal(tn.encode(), b) {
			t.Errorf("%x encodes as %x", b, tn.encode())
		}
		_, _ = parseItem(b)
		_, _ = ParseAdd(b, "s")
	})
}
