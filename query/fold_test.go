package query_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
	"tallystick/query/summary"
)

var actors = []string{"mac:claude:x", "nas:codex:x", "win-gemini"}

// entries draws what a few devices may have written: events, requests with and
// without expiry, the whole claim family on few tasks, imports that meet, and
// summaries with good and bad timestamps.
func entries(t *rapid.T) []oplog.Entry {
	seq := map[byte]uint64{}
	clock := map[byte]int64{}
	var claims []oplog.Entry
	n := rapid.IntRange(1, 60).Draw(t, "n")
	tasks := rapid.IntRange(1, 4).Draw(t, "tasks")
	var out []oplog.Entry
	for i := 0; i < n; i++ {
		device := byte(rapid.IntRange(0, 2).Draw(t, "device"))
		clock[device] += int64(rapid.SampledFrom([]int{1, 1, 2, 60_000, 3_600_000}).Draw(t, "step"))
		seq[device]++
		author := actors[device]
		if rapid.IntRange(0, 9).Draw(t, "flat") == 0 {
			author = "win-gemini" // one flat name on every device
		}
		task := fmt.Sprintf("task_%d", rapid.IntRange(1, tasks).Draw(t, "task"))
		var key imported.Key
		if rapid.IntRange(0, 4).Draw(t, "import") == 0 {
			key = imported.Key{Source: "beads", ID: task, Part: "p"}
		}
		kind, body := drawBody(t, task, key, claims)
		e := foldtest.Entry(device, seq[device], foldtest.At(clock[device]), kind, author, body)
		if kind == logstream.KindAck {
			claims = append(claims, e)
		}
		out = append(out, e)
	}
	return out
}

func drawBody(t *rapid.T, task string, key imported.Key, claims []oplog.Entry) (string, []byte) {
	switch rapid.SampledFrom([]string{"event", "request", "ack", "ack", "ack", "ack", "summary"}).Draw(t, "kind") {
	case "event":
		ev := logstream.Event{
			Type: "status", Stream: "s", Room: "r", Import: key,
			To:          rapid.SampledFrom([]string{"", "*", actors[0]}).Draw(t, "to"),
			Correlation: rapid.SampledFrom([]string{"", task}).Draw(t, "correlation"),
		}
		return logstream.KindEvent, ev.Append(nil)
	case "request":
		ev := logstream.Event{Type: logstream.TypeRequest, Stream: "s", Room: "r", Correlation: task, Status: "open", Import: key}
		if rapid.Bool().Draw(t, "expires") {
			ev.ExpiresAt = foldtest.At(int64(rapid.IntRange(1, 20_000_000).Draw(t, "expiry"))).Millis()
		}
		return logstream.KindEvent, ev.Append(nil)
	case "summary":
		s := summary.Summary{
			Title: "t", Text: "x", Category: rapid.SampledFrom(summary.Categories()).Draw(t, "category"), Import: key,
			Identities: rapid.SampledFrom([][]string{{}, {"a"}, {"b"}, {"a", "b"}}).Draw(t, "identities"),
			Timestamp:  rapid.SampledFrom([]string{"", "2026-01-02T03:04:05Z", "yesterday"}).Draw(t, "timestamp"),
		}
		return summary.Kind, s.Append(nil)
	}
	a := logstream.Ack{
		Event: logstream.Event{Type: logstream.TypeAck, Stream: "s", Room: "r", Correlation: task, Import: key},
		Task:  "c\x00s\x00" + task, Of: oplog.MakeRef(foldtest.At(0), foldtest.Origin(0), 1, oplog.Hash{1}),
	}
	a.Status = rapid.SampledFrom([]string{"claimed", "claimed", "claimed", "claimed", "claimed", "ready", "", "released", "blocked", "failed", "superseded", "applied"}).Draw(t, "status")
	if rapid.IntRange(0, 2).Draw(t, "lease") == 0 {
		a.LeaseMS = rapid.SampledFrom([]int64{1, 600_000, 7_200_000}).Draw(t, "lease_ms")
	}
	if a.Status == "superseded" && len(claims) > 0 {
		of := rapid.SampledFrom(claims).Draw(t, "losing")
		a.Claim, a.Of, a.Automatic = of.Ref(), of.Ref(), true
	}
	return logstream.KindAck, a.Append(nil)
}

func fold(t rapid.TB, entries []oplog.Entry) *foldtest.Replica {
	t.Helper()
	views, _ := query.Default()
	r := foldtest.NewReplica(views...)
	if err := r.Apply(entries...); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestM1_SameRowsInAnyOrder folds the same entries in two orders. The view in
// memory also fails on an insert of what exists and on a delete of what does
// not, so that the log's digest stays right.
func TestM1_SameRowsInAnyOrder(t *testing.T) {
	views, _ := query.Default()
	rapid.Check(t, func(t *rapid.T) {
		all := entries(t)
		shuffled := shuffle(t, all)
		a, b := fold(t, all), fold(t, shuffled)
		for _, v := range views {
			if x, y := a.Tx(v.Name()).Dump(), b.Tx(v.Name()).Dump(); x != y {
				t.Fatalf("view %s differs\n%s\n---\n%s", v.Name(), x, y)
			}
		}
	})
}

// TestM1_SameAnswersInAnyOrder compares what clients read.
func TestM1_SameAnswersInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := entries(t)
		a, b := fold(t, all), fold(t, shuffle(t, all))
		h := claim.Horizon{Now: foldtest.At(10_000_000).Time(), Members: []claim.MemberFloor{{Label: "x", Floor: foldtest.At(9_000_000), Complete: true}}}
		for n := 1; n <= 4; n++ {
			key := fmt.Sprintf("c\x00s\x00task_%d", n)
			x, err := claim.Get(a, key, h, nil)
			if err != nil {
				t.Fatal(err)
			}
			y, err := claim.Get(b, key, h, nil)
			if err != nil {
				t.Fatal(err)
			}
			if show(x) != show(y) {
				t.Fatalf("task %d differs\n%s\n%s", n, show(x), show(y))
			}
		}
		x, err := claim.List(a, claim.Filter{}, h, nil)
		if err != nil {
			t.Fatal(err)
		}
		y, err := claim.List(b, claim.Filter{}, h, nil)
		if err != nil {
			t.Fatal(err)
		}
		if show(x) != show(y) {
			t.Fatalf("claims differ\n%s\n%s", show(x), show(y))
		}
	})
}

// TestK1_EveryPendingLossIsListedAndTold: each loss shows both sides, and its
// home owes exactly one superseded ack until an ack names it. What else a home
// owes tells of a claim that it has ended although that claim won (K5).
func TestK1_EveryPendingLossIsListedAndTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := fold(t, entries(t))
		h := claim.Horizon{Now: foldtest.At(1 << 40).Time(), Members: []claim.MemberFloor{{Label: "x", Floor: foldtest.At(1 << 40), Complete: true}}}
		losses, err := claim.Losses(r, h, 1000)
		if err != nil {
			t.Fatal(err)
		}
		untold := 0
		for _, l := range losses {
			if !l.Told {
				untold++
			}
			if l.Claim == l.Winner || l.Rule == "unknown" || l.Loser == "" || l.WonBy == "" {
				t.Fatalf("M3: a loss lacks a side: %+v", l)
			}
		}
		owed := 0
		told := map[oplog.Ref]bool{}
		for device := byte(0); device < 3; device++ {
			h.Self = foldtest.Origin(device)
			ops, _, err := claim.React(r, h)
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range ops {
				ack, err := logstream.Decode(&oplog.Entry{Header: oplog.Header{Kind: op.Kind}, Version: op.Version, Body: op.Body})
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case string(ack.Status) == logstream.StatusSuperseded && ack.Claim == ack.Of:
					owed++
				case string(ack.Status) != logstream.StatusReleased || !ack.Claim.IsZero():
					t.Fatalf("owed: %+v", ack)
				}
				if told[ack.Of] {
					t.Fatalf("one claim is told of twice: %+v", ack)
				}
				told[ack.Of] = true
			}
		}
		if owed != untold {
			t.Fatalf("%d acks owed for %d losses not told", owed, untold)
		}
	})
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// shuffle draws another order of arrival.
func shuffle(t *rapid.T, all []oplog.Entry) []oplog.Entry {
	index := make([]int, len(all))
	for i := range index {
		index[i] = i
	}
	out := make([]oplog.Entry, len(all))
	for i, n := range rapid.Permutation(index).Draw(t, "order") {
		out[i] = all[n]
	}
	return out
}
