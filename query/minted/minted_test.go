package minted_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tallystick/oplog"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
	"tallystick/query/minted"
)

var (
	tally  = minted.Repo{Root: strings.Repeat("a", 40), Remote: "example.org/me/tally"}
	guard  = minted.Repo{Root: strings.Repeat("b", 40), Remote: "example.org/me/guard"}
	guard2 = minted.Repo{Root: strings.Repeat("c", 40)}
)

// world is one host whose agents ask for names and use them.
type world struct {
	t   *testing.T
	rep *foldtest.Replica
	seq uint64
}

func newWorld(t *testing.T) *world {
	return &world{t: t, rep: foldtest.NewReplica(minted.View{}, everything{}, logstream.View{})}
}

// everything is minted.Speakers for the fold of tests, which knows no "*".
type everything struct{ minted.Speakers }

func (everything) Kinds() []string { return []string{minted.Kind, logstream.KindEvent} }

func (w *world) add(device byte, kind, author string, body []byte) {
	w.t.Helper()
	w.seq++
	if err := w.rep.Apply(foldtest.Entry(device, w.seq, foldtest.At(int64(w.seq)), kind, author, body)); err != nil {
		w.t.Fatal(err)
	}
}

// speak writes an event under a name.
func (w *world) speak(device byte, author string) {
	w.t.Helper()
	ev := logstream.Event{Type: "note", Stream: "s", Room: "r"}
	w.add(device, logstream.KindEvent, author, ev.Append(nil))
}

func (w *world) decide(q minted.Request) minted.Decision {
	w.t.Helper()
	if q.Host == "" {
		q.Host = "mac"
	}
	if q.Agent == "" {
		q.Agent = "claude"
	}
	q.Mine = func(o oplog.OriginID) bool { return o == foldtest.Origin(1) }
	d, err := minted.Decide(w.rep, q)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// mint decides and writes the name down, as a renderer does.
func (w *world) mint(q minted.Request) string {
	w.t.Helper()
	d := w.decide(q)
	if d.Collision != nil {
		return "collision"
	}
	if !d.Known {
		op, err := minted.NewOp(d.Mint)
		if err != nil {
			w.t.Fatal(err)
		}
		w.add(1, op.Kind, op.Author, op.Body)
		if again := w.decide(q); !again.Known || again.Mint.Name() != d.Mint.Name() {
			w.t.Fatalf("minted %+v, then decided %+v", d, again)
		}
	}
	return d.Mint.Name()
}

func (w *world) want(got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("name is %s, want %s", got, want)
	}
}

func inRepo(project string, r minted.Repo) minted.Request {
	return minted.Request{Project: project, Repo: r}
}

// I1: an agent that is new takes the tuple at once.
func TestI1_NewAgentMintsTheTuple(t *testing.T) {
	w := newWorld(t)
	w.want(w.mint(inRepo("tally", tally)), "mac:claude:tally")
	w.want(w.mint(minted.Request{Agent: "codex", Project: "tally", Repo: tally}), "mac:codex:tally")
}

// I1: outside a repository there is no project, and no sentinel for it.
func TestI1_NoProjectIsFlat(t *testing.T) {
	w := newWorld(t)
	w.want(w.mint(minted.Request{}), "mac-claude")
	w.want(w.mint(minted.Request{}), "mac-claude")
}

// I7: a flat name that is in use stays while there is one project, and gives
// way to tuples for good from the second on.
func TestI7_FlatStaysUntilTheSecondProject(t *testing.T) {
	for name, spoken := range map[string][]string{"on the log": nil, "in a managed block": {"mac-claude"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if spoken == nil {
				w.speak(1, "mac-claude")
			}
			first := inRepo("tally", tally)
			first.Spoken = spoken
			w.want(w.mint(first), "mac-claude")
			w.want(w.mint(inRepo("tally", tally)), "mac-claude")
			w.want(w.mint(minted.Request{}), "mac-claude")
			w.want(w.mint(inRepo("guard", guard)), "mac:claude:guard")
			w.want(w.mint(inRepo("tally", tally)), "mac:claude:tally") // never goes back
			first.Spoken = []string{"mac-claude"}
			w.want(w.mint(first), "mac:claude:tally")
			w.want(w.mint(minted.Request{}), "mac-claude")
		})
	}
}

// I7: another machine that writes under the flat name is a collision.
func TestI7_FlatCollidesWithAnotherMachine(t *testing.T) {
	w := newWorld(t)
	w.speak(1, "mac-claude")
	w.want(w.mint(inRepo("tally", tally)), "mac-claude")
	w.speak(2, "mac-claude")
	w.want(w.mint(inRepo("tally", tally)), "mac:claude:tally")

	// One that only the other machine has used is not ours to keep.
	w.speak(2, "mac-gemini")
	w.want(w.mint(minted.Request{Agent: "gemini", Project: "tally", Repo: tally}), "mac:gemini:tally")
}

// I7: what another machine mints about this host counts for nothing here.
func TestI9_MintsOfOthersDoNotCount(t *testing.T) {
	w := newWorld(t)
	op, err := minted.NewOp(minted.Mint{Host: "mac", Agent: "claude", Project: "guard", Repo: guard, Flat: true})
	if err != nil {
		t.Fatal(err)
	}
	w.add(2, op.Kind, op.Author, op.Body)
	w.want(w.mint(inRepo("guard", guard2)), "mac:claude:guard")
}

// I2: worktrees and clones are one project, whatever the folder is called.
func TestI2_ClonesAreOneProject(t *testing.T) {
	w := newWorld(t)
	w.want(w.mint(inRepo("tally", tally)), "mac:claude:tally")
	for name, r := range map[string]minted.Repo{
		"other folder":    tally,
		"without remote":  {Root: tally.Root},
		"shallow":         {Remote: tally.Remote},
		"history changed": {Root: strings.Repeat("d", 40), Remote: tally.Remote},
	} {
		t.Run(name, func(t *testing.T) {
			w.want(w.mint(inRepo("tally-copy", r)), "mac:claude:tally")
		})
	}
	w.want(w.mint(minted.Request{Agent: "codex", Project: "copy", Repo: tally}), "mac:codex:tally")
	if d := w.decide(inRepo("tally", minted.Repo{Root: tally.Root, Remote: "example.org/you/tally"})); d.Collision == nil {
		t.Error("a fork of the same name is not told")
	}
	w.want(w.mint(minted.Request{Host: "mac", Project: "fork", Repo: minted.Repo{Root: tally.Root, Remote: "example.org/you/tally"}}), "mac:claude:fork")
}

// I2: the same repository has one name on every machine, unless the name is
// taken there.
func TestI2_CloneOnAnotherHost(t *testing.T) {
	w := newWorld(t)
	op, err := minted.NewOp(minted.Mint{Host: "lap", Agent: "claude", Project: "guard", Repo: guard})
	if err != nil {
		t.Fatal(err)
	}
	w.add(2, op.Kind, op.Author, op.Body)
	w.want(w.mint(inRepo("my-guard", guard)), "mac:claude:guard")

	w = newWorld(t)
	w.want(w.mint(inRepo("guard", guard2)), "mac:claude:guard")
	w.add(2, op.Kind, op.Author, op.Body)
	w.want(w.mint(inRepo("my-guard", guard)), "mac:claude:my-guard")
}

// I2: two repositories of one name are two projects; the second is told, and
// goes on under a name of its own, or as the same project when it is.
func TestI2_TwoRepositoriesOfOneName(t *testing.T) {
	w := newWorld(t)
	w.want(w.mint(inRepo("guard", guard)), "mac:claude:guard")
	d := w.decide(inRepo("guard", guard2))
	if d.Collision == nil || d.Collision.Theirs != guard || d.Collision.Yours != guard2 || d.Collision.Project != "guard" {
		t.Fatalf("collision: %+v", d)
	}
	if d := w.decide(minted.Request{Agent: "codex", Project: "guard", Repo: guard2}); d.Collision == nil {
		t.Error("another agent is not told")
	}
	chosen := inRepo("guard-of-you", guard2)
	chosen.Chosen = true
	w.want(w.mint(chosen), "mac:claude:guard-of-you")
	w.want(w.mint(inRepo("guard", guard2)), "mac:claude:guard-of-you")
	chosen.Project = "guard"
	w.want(w.mint(chosen), "collision")
	w.want(w.mint(inRepo("guard", guard)), "mac:claude:guard")

	same := inRepo("guard", guard2)
	same.SameProject = true
	w.want(w.mint(same), "mac:claude:guard")
	w.want(w.mint(inRepo("elsewhere", guard2)), "mac:claude:guard")
	chosen.Project = "guard-of-you" // and once more the other way
	w.want(w.mint(chosen), "mac:claude:guard-of-you")
	w.want(w.mint(inRepo("guard", guard2)), "mac:claude:guard-of-you")
}

// I2: a repository gets its first commit, then a remote; it stays the same.
func TestI2_RepositoryGrows(t *testing.T) {
	w := newWorld(t)
	for _, r := range []minted.Repo{{}, {Root: tally.Root}, tally} {
		w.want(w.mint(inRepo("tally", r)), "mac:claude:tally")
	}
	if d := w.decide(inRepo("tally", guard)); d.Collision == nil {
		t.Error("a stranger of the same name is not told")
	}
}

// I6: names in old instructions are remembered once as what the agent was
// called.
func TestI6_FormerNamesAreKept(t *testing.T) {
	w := newWorld(t)
	q := inRepo("tally", tally)
	q.Spoken = []string{"windows-claude"}
	w.want(w.mint(q), "mac:claude:tally")
	list, err := minted.Former(w.rep, "mac", "claude")
	if err != nil || !slices.Equal(list, []string{"windows-claude"}) {
		t.Errorf("former names: %v, %v", list, err)
	}
	if d := w.decide(q); !d.Known {
		t.Error("they are minted again")
	}
}

// I3: a mint has no place for a session or a process.
func TestI3_MintIsTheNameAlone(t *testing.T) {
	for _, m := range []minted.Mint{
		{Host: "mac", Agent: "claude:7", Project: "x"}, {Host: "mac", Agent: "me", Project: "x"}, {Host: "mac", Agent: "claude"},
		{Host: "a-b", Agent: "claude", Project: "x"}, {Host: "Mac", Agent: "claude", Project: "x"},
		{Host: "mac", Agent: "claude", Project: "x", Repo: minted.Repo{Root: "beef"}},
		{Host: "mac", Agent: "claude", Project: "x", Repo: minted.Repo{Remote: "a b"}},
		{Host: "mac", Agent: "claude", Project: strings.Repeat("x", minted.MaxPart+1)},
		{Host: "mac", Agent: "claude", Project: "x", Former: []string{"a,b"}},
	} {
		if _, err := minted.NewOp(m); err == nil {
			t.Errorf("%+v is minted", m)
		}
	}
}

// L6: a mint that does not fit its author, or is malformed, is set aside.
func TestL6_BadMintsAreSetAside(t *testing.T) {
	op, err := minted.NewOp(minted.Mint{Host: "mac", Agent: "claude", Project: "x", Repo: tally})
	if err != nil {
		t.Fatal(err)
	}
	e := foldtest.Entry(1, 1, foldtest.At(1), minted.Kind, op.Author, op.Body)
	if _, err := minted.Decode(&e); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*oplog.Entry){
		"author":   func(e *oplog.Entry) { e.Author = "mac:codex:x" },
		"version":  func(e *oplog.Entry) { e.Version = 9 },
		"cut":      func(e *oplog.Entry) { e.Body = e.Body[:len(e.Body)-1] },
		"trailing": func(e *oplog.Entry) { e.Body = append(slices.Clone(e.Body), 0) },
		"empty":    func(e *oplog.Entry) { e.Body = []byte{0x90} },
	} {
		bad := e.Clone()
		bad.Body = slices.Clone(op.Body)
		change(&bad)
		if _, err := minted.Decode(&bad); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

// M1: the rows are the same whatever order the entries come in.
func TestM1_AnyOrderSameRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "n")
		var list []oplog.Entry
		for i := range n {
			device := byte(rapid.IntRange(1, 2).Draw(t, "device"))
			m := minted.Mint{
				Host: "mac", Agent: rapid.SampledFrom([]string{"claude", "codex"}).Draw(t, "agent"),
				Project: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "project"), Flat: rapid.Bool().Draw(t, "flat"),
				Repo: rapid.SampledFrom([]minted.Repo{{}, tally, guard}).Draw(t, "repo"), Chosen: rapid.Bool().Draw(t, "chosen"),
				Former: rapid.SampledFrom([][]string{nil, {"a"}, {"a", "b"}}).Draw(t, "former"),
			}
			op, err := minted.NewOp(m)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, foldtest.Entry(device, uint64(i+1), foldtest.At(int64(rapid.IntRange(1, 9).Draw(t, "at"))), op.Kind, op.Author, op.Body))
		}
		fold := func(list []oplog.Entry) string {
			r := foldtest.NewReplica(minted.View{}, everything{})
			if err := r.Apply(list...); err != nil {
				t.Fatal(err)
			}
			return r.Tx(minted.ViewName).Dump() + r.Tx(minted.SpeakersName).Dump()
		}
		if a, b := fold(list), fold(rapid.Permutation(list).Draw(t, "order")); a != b {
			t.Fatalf("two orders, two views:\n%s\n%s", a, b)
		}
	})
}

func TestCleanRemote(t *testing.T) {
	const want = "example.org/me/tally"
	for _, url := range []string{
		"https://example.org/me/tally.git", "https://user:secret@example.org/me/tally", "git@example.org:me/tally.git",
		"ssh://git@example.org:2222/me/tally.git/", "http://example.org:8080/Me/Tally", "example.org:me/tally", "https://example.org/me/tally?token=x",
	} {
		if got := minted.CleanRemote(url); got != want {
			t.Errorf("%s: %q", url, got)
		}
	}
	for _, url := range []string{"", "/srv/git/tally.git", "../tally", "file:///srv/tally", `C:\src\tally`, "https://example.org", "https:///x", "https://example.org/a b"} {
		if got := minted.CleanRemote(url); got != "" {
			t.Errorf("%s: %q, want nothing", url, got)
		}
	}
}

func Example() {
	rep := foldtest.NewReplica(minted.View{})
	d, err := minted.Decide(rep, minted.Request{Host: "mac", Agent: "claude", Project: "tally"})
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Mint.Name(), d.Why)
	// Output: mac:claude:tally this agent is new here
}
