package logstream_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// event makes an event of a device; seq and stamp grow together.
func event(device byte, seq uint64, author string, change ...func(*logstream.Event)) oplog.Entry {
	ev := logstream.Event{Type: "status", Stream: "project/x", Room: "status", Body: fmt.Sprintf("%d/%d", device, seq)}
	for _, c := range change {
		c(&ev)
	}
	return foldtest.Entry(device, seq, foldtest.At(int64(seq)*1000+int64(device)), logstream.KindEvent, author, ev.Append(nil))
}

func to(agent string) func(*logstream.Event) { return func(e *logstream.Event) { e.To = agent } }

func fold(t rapid.TB, entries ...oplog.Entry) *foldtest.Replica {
	t.Helper()
	r := foldtest.NewReplica(logstream.View{})
	if err := r.Apply(entries...); err != nil {
		t.Fatal(err)
	}
	return r
}

func list(t rapid.TB, r oplog.Snapshot, f logstream.Filter) logstream.Page {
	t.Helper()
	p, err := logstream.List(r, f)
	if err != nil {
		t.Fatalf("list %+v: %v", f, err)
	}
	if p.Count != len(p.Events) || p.NextCursor == "" {
		t.Fatalf("count %d of %d, cursor %q", p.Count, len(p.Events), p.NextCursor)
	}
	return p
}

func bodies(events []logstream.Record) string {
	var out []string
	for _, e := range events {
		out = append(out, e.Body)
	}
	return strings.Join(out, " ")
}

func TestInboxIsExactOrEverybody(t *testing.T) {
	const me = "mac:claude:x"
	r := fold(t,
		event(0, 1, "a-b", to(me)), event(0, 2, "a-b", to("*")), event(0, 3, "a-b", to("mac:claude:xy")),
		event(0, 4, "a-b"), event(0, 5, "a-b", to("mac:claude")))
	if got := bodies(list(t, r, logstream.Filter{To: []string{me}}).Events); got != "0/2 0/1" {
		t.Errorf("inbox %q", got)
	}
	if got := bodies(list(t, r, logstream.Filter{To: []string{me, "mac:claude"}}).Events); got != "0/5 0/2 0/1" {
		t.Errorf("two inboxes %q", got)
	}
	if got := bodies(list(t, r, logstream.Filter{To: []string{"*"}}).Events); got != "0/2" {
		t.Errorf("broadcasts %q", got)
	}
}

func TestFilters(t *testing.T) {
	r := fold(t,
		event(0, 1, "a-b", func(e *logstream.Event) {
			e.Type, e.Stream, e.Room, e.Topic = "task.request", "project/y", "delegation", "lane"
		}),
		event(1, 1, "c-d", func(e *logstream.Event) { e.Correlation, e.Status = "task_1", "open" }),
		event(0, 2, "a-b", func(e *logstream.Event) { e.Correlation = "task_1" }))
	for _, c := range []struct {
		name string
		f    logstream.Filter
		want string
	}{
		{"none", logstream.Filter{}, "0/2 1/1 0/1"},
		{"asc", logstream.Filter{Order: "asc"}, "0/1 1/1 0/2"},
		{"DESC", logstream.Filter{Order: "DESC"}, "0/2 1/1 0/1"},
		{"stream", logstream.Filter{Stream: "project/y"}, "0/1"},
		{"room", logstream.Filter{Room: "delegation"}, "0/1"},
		{"topic", logstream.Filter{Topic: "lane"}, "0/1"},
		{"type", logstream.Filter{Types: []string{"task.request"}}, "0/1"},
		{"types", logstream.Filter{Types: []string{"task.request", "status"}}, "0/2 1/1 0/1"},
		{"writer", logstream.Filter{Writer: "c-d"}, "1/1"},
		{"not writer", logstream.Filter{ExcludeWriter: "a-b"}, "1/1"},
		{"correlation", logstream.Filter{Correlation: "task_1"}, "0/2 1/1"},
		{"status", logstream.Filter{Status: "open"}, "1/1"},
		{"since created", logstream.Filter{SinceCreated: foldtest.At(1001).Time()}, "0/2 1/1"},
		{"since created, asc", logstream.Filter{SinceCreated: foldtest.At(1001).Time(), Order: "asc"}, "1/1 0/2"},
		{"nothing", logstream.Filter{Stream: "project/z"}, ""},
	} {
		if got := bodies(list(t, r, c.f).Events); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFilterErrorsNameTheField(t *testing.T) {
	r := fold(t, event(0, 1, "a-b"))
	for _, c := range []struct {
		f     logstream.Filter
		field string
		code  refusal.Code
	}{
		{logstream.Filter{Limit: 501}, "limit", refusal.InvalidArgument},
		{logstream.Filter{Limit: -1}, "limit", refusal.InvalidArgument},
		{logstream.Filter{Order: "newest"}, "order", refusal.InvalidArgument},
		{logstream.Filter{Status: "done"}, "status", refusal.InvalidArgument},
		{logstream.Filter{Types: []string{"Status"}}, "type", refusal.InvalidArgument},
		{logstream.Filter{Room: "a\nb"}, "room", refusal.InvalidArgument},
		{logstream.Filter{Stream: strings.Repeat("x", 257)}, "stream", refusal.TooLarge},
		{logstream.Filter{To: []string{""}}, "to_agent", refusal.InvalidArgument},
		{logstream.Filter{Cursor: "nonsense!"}, "cursor", refusal.UnknownCursor},
		{logstream.Filter{Cursor: "AAAAAAAAAAAA"}, "cursor", refusal.UnknownCursor},
		{logstream.Filter{Cursor: strings.Repeat("A", 17<<10)}, "cursor", refusal.TooLarge},
		{logstream.Filter{SinceEventID: "evt_20260101T000001_000000000000"}, "since_event_id", refusal.UnknownCursor},
		{logstream.Filter{SinceEventID: "yesterday"}, "since_event_id", refusal.InvalidArgument},
		{logstream.Filter{BeforeEventID: "evt_20260101T000001_000000000000"}, "before_event_id", refusal.UnknownCursor},
	} {
		_, err := logstream.List(r, c.f)
		e, ok := refusal.As(err)
		if !ok || e.Field != c.field || e.Code != c.code || e.Hint == "" {
			t.Errorf("%+v: %#v, want %s about %s", c.f, err, c.code, c.field)
		}
	}
}

func TestSinceAndBeforeSpeakOfArrival(t *testing.T) {
	a, b, c, d := event(0, 1, "a-b"), event(1, 1, "c-d"), event(0, 2, "a-b"), event(0, 3, "a-b")
	r := fold(t, a, c, b, d) // b arrives late
	id := func(e oplog.Entry) string { return logstream.EventID(e.Ref()) }
	for _, x := range []struct {
		name string
		f    logstream.Filter
		want string
	}{
		{"since is exclusive, oldest first", logstream.Filter{SinceEventID: id(a)}, "0/2 1/1 0/3"},
		{"since the late one", logstream.Filter{SinceEventID: id(c)}, "1/1 0/3"},
		{"since, desc", logstream.Filter{SinceEventID: id(a), Order: "desc"}, "0/3 1/1 0/2"},
		{"before is exclusive, newest first", logstream.Filter{BeforeEventID: id(d)}, "1/1 0/2 0/1"},
		{"before the first", logstream.Filter{BeforeEventID: id(a)}, ""},
		{"between", logstream.Filter{SinceEventID: id(a), BeforeEventID: id(d)}, "0/2 1/1"},
		{"before, asc", logstream.Filter{BeforeEventID: id(b), Order: "asc"}, "0/1 0/2"},
	} {
		if got := bodies(list(t, r, x.f).Events); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
	if got := bodies(walk(t, r, logstream.Filter{BeforeEventID: id(d), Limit: 1}, 3)); got != "1/1 0/2 0/1" {
		t.Errorf("pages before: %q", got)
	}
}

// walk follows next_cursor for some pages and returns what they hold.
func walk(t rapid.TB, r oplog.Snapshot, f logstream.Filter, pages int) (all []logstream.Record) {
	t.Helper()
	for i := 0; i < pages; i++ {
		p := list(t, r, f)
		all = append(all, p.Events...)
		f.Cursor, f.SinceEventID, f.BeforeEventID = p.NextCursor, "", ""
	}
	return all
}

func TestPagesRunNewestFirstThenFollowTheTail(t *testing.T) {
	r := fold(t, event(0, 1, "a-b"), event(0, 2, "a-b"), event(0, 3, "a-b"))
	f := logstream.Filter{Limit: 2}
	p := list(t, r, f)
	if bodies(p.Events) != "0/3 0/2" || !p.HasMore || p.Truncated {
		t.Fatalf("first page %+v", p)
	}
	// What arrives while the listing goes on waits for its end.
	if err := r.Apply(event(1, 1, "c-d")); err != nil {
		t.Fatal(err)
	}
	f.Cursor = p.NextCursor
	p = list(t, r, f)
	if bodies(p.Events) != "0/1" || p.HasMore {
		t.Fatalf("second page %+v", p)
	}
	f.Cursor = p.NextCursor
	p = list(t, r, f)
	if bodies(p.Events) != "1/1" {
		t.Fatalf("tail %+v", p)
	}
	f.Cursor = p.NextCursor
	if p = list(t, r, f); p.Count != 0 {
		t.Fatalf("again %+v", p)
	}
	f.Order = "desc"
	if _, err := logstream.List(r, f); refusal.CodeOf(err) != refusal.InvalidArgument {
		t.Fatalf("order against the cursor: %v", err)
	}
}

func TestPageEndsAtThirtyTwoKilobytes(t *testing.T) {
	big := func(n int) func(*logstream.Event) {
		return func(e *logstream.Event) { e.Body = strings.Repeat("é", n/2) }
	}
	r := fold(t, event(0, 1, "a-b", big(20_000)), event(0, 2, "a-b", big(20_000)), event(0, 3, "a-b", big(200_000)))
	f, sizes := logstream.Filter{}, []int{}
	for i := 0; i < 3; i++ {
		p := list(t, r, f)
		b, _ := json.Marshal(p.Events)
		if p.Count > 1 && len(b) > logstream.MaxPageBytes {
			t.Errorf("page of %d bytes", len(b))
		}
		if p.Truncated != (i < 2) || p.HasMore != (i < 2) {
			t.Errorf("page %d: truncated %v, has_more %v", i, p.Truncated, p.HasMore)
		}
		sizes = append(sizes, p.Count)
		f.Cursor = p.NextCursor
	}
	if !slices.Equal(sizes, []int{1, 1, 1}) {
		t.Errorf("pages of %v", sizes)
	}
	p := list(t, r, logstream.Filter{Preview: true})
	if p.Count != 3 || !p.Events[0].BodyTruncated || p.Events[0].BodyLength != 100_000 || p.Events[0].Body != strings.Repeat("é", 200) {
		t.Errorf("preview %d %v %d", p.Count, p.Events[0].BodyTruncated, p.Events[0].BodyLength)
	}
}

func TestPreviewLeavesShortBodiesAlone(t *testing.T) {
	r := fold(t, event(0, 1, "a-b", func(e *logstream.Event) { e.Body = strings.Repeat("x", 200) }))
	if p := list(t, r, logstream.Filter{Preview: true}); p.Events[0].BodyTruncated || p.Events[0].BodyLength != 0 {
		t.Errorf("%+v", p.Events[0])
	}
}

// TestB1_CursorContinuesOnAnyReplica pages through a stream, changing the
// replica, while entries arrive in another order on each and some are set
// aside and folded later: nothing is skipped, nothing repeats.
func TestB1_CursorContinuesOnAnyReplica(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var origins [3][]oplog.Entry
		total := 0
		for d := range origins {
			n := rapid.IntRange(0, 8).Draw(t, "entries")
			for s := 1; s <= n; s++ {
				origins[d] = append(origins[d], event(byte(d), uint64(s), "a-b"))
			}
			total += n
		}
		replicas := []*foldtest.Replica{fold(t), fold(t)}
		var held [2][3]int
		hidden := map[oplog.Ref]bool{}
		for d := range origins {
			if n := len(origins[d]); n > 1 && rapid.Bool().Draw(t, "quarantine") {
				hidden[origins[d][rapid.IntRange(0, n-2).Draw(t, "which")].Ref()] = true
			}
		}
		replicas[0].Hidden = hidden // this replica is older: it cannot fold some
		deliver := func(r, d int) {
			if held[r][d] < len(origins[d]) {
				if err := replicas[r].Apply(origins[d][held[r][d]]); err != nil {
					t.Fatal(err)
				}
				held[r][d]++
			}
		}
		seen := map[string]int{}
		f := logstream.Filter{Limit: rapid.IntRange(1, 4).Draw(t, "limit"), Order: rapid.SampledFrom([]string{"", "asc"}).Draw(t, "order")}
		read := func(r int) bool {
			f.Replica = foldtest.Origin(byte(10 + r))
			p, err := logstream.List(replicas[r], f)
			if refusal.CodeOf(err) == refusal.ForeignCursor {
				return false // not all of the listing is here; it goes on elsewhere
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Events {
				if seen[e.ID]++; seen[e.ID] > 1 {
					t.Fatalf("event %s repeats", e.Body)
				}
			}
			f.Cursor, f.Order = p.NextCursor, ""
			return p.HasMore
		}
		for i := rapid.IntRange(0, 30).Draw(t, "steps"); i > 0; i-- {
			r := rapid.IntRange(0, 1).Draw(t, "replica")
			if rapid.Bool().Draw(t, "deliver") {
				deliver(r, rapid.IntRange(0, 2).Draw(t, "origin"))
			} else {
				read(r)
			}
		}
		for r := range replicas {
			for d := range origins {
				for held[r][d] < len(origins[d]) {
					deliver(r, d)
				}
			}
		}
		// Read on until both replicas have nothing new; the newer one ends it.
		for i := 0; i < 2; i++ {
			for read(0) {
			}
			for read(1) {
			}
		}
		for read(1) {
		}
		if p := list(t, replicas[1], f); p.Count != 0 {
			t.Fatalf("still %d", p.Count)
		}
		if len(seen) != total {
			t.Fatalf("%d of %d delivered", len(seen), total)
		}
	})
}

func TestCursorWithoutCoverageIsForeignElsewhere(t *testing.T) {
	r := fold(t, event(0, 1, "a-b"), event(0, 2, "a-b"))
	bare := struct{ oplog.Snapshot }{r} // a snapshot that cannot say positions
	p := list(t, bare, logstream.Filter{Limit: 1, Replica: foldtest.Origin(1)})
	f := logstream.Filter{Cursor: p.NextCursor, Replica: foldtest.Origin(1)}
	if got := bodies(list(t, bare, f).Events); got != "0/1" {
		t.Errorf("at home %q", got)
	}
	f.Replica = foldtest.Origin(2)
	if _, err := logstream.List(bare, f); refusal.CodeOf(err) != refusal.ForeignCursor {
		t.Errorf("elsewhere: %v", err)
	}
}

func TestImportsFoldToTheEarliest(t *testing.T) {
	key := func(e *logstream.Event) {
		e.Import = imported.Key{Source: "beads", ID: "bd-1", Part: "request"}
		e.To, e.Correlation = "*", "c"
	}
	first, second := event(0, 1, "a-b", key), event(1, 2, "c-d", key)
	for _, order := range [][]oplog.Entry{{first, second}, {second, first}} {
		r := fold(t, order...)
		for _, f := range []logstream.Filter{{}, {To: []string{"x-y"}}, {Correlation: "c"}} {
			if got := bodies(list(t, r, f).Events); got != "0/1" {
				t.Errorf("%+v: %q", f, got)
			}
		}
		copies, _, err := logstream.CopyPage(r, nil, 10)
		if err != nil || len(copies) != 1 || copies[0].Copy != second.Ref() || copies[0].Counts != first.Ref() {
			t.Errorf("M3: copies %+v %v", copies, err)
		}
		if ref, ok, err := logstream.Imported(r, imported.Key{Source: "beads", ID: "bd-1", Part: "request"}); !ok || ref != first.Ref() || err != nil {
			t.Errorf("imported %v %v %v", ref, ok, err)
		}
		if _, ok, _ := logstream.Imported(r, imported.Key{Source: "beads", ID: "bd-2", Part: "request"}); ok {
			t.Error("an unknown key is known")
		}
	}
}

func TestTail(t *testing.T) {
	r := fold(t, event(0, 1, "a-b"))
	c, err := logstream.Tail(r, oplog.OriginID{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(event(0, 2, "a-b")); err != nil {
		t.Fatal(err)
	}
	if got := bodies(list(t, r, logstream.Filter{Cursor: c}).Events); got != "0/2" {
		t.Errorf("behind the tail %q", got)
	}
}
