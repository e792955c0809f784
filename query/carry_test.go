package query_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/carried"
	"tallystick/query/claim"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/mailbox"
	"tallystick/query/memory"
	"tallystick/query/minted"
	"tallystick/query/summary"
)

// TestBring_EveryReadShowsTheSame: what is carried into another log reads there
// as it did, ids, threads, lineages, leases and times included.
func TestBring_EveryReadShowsTheSame(t *testing.T) {
	old := open(t, 0)
	old.life()
	kinds := map[string]int{}
	var entries int
	old.view(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if entries++; e.Kind != "tally.birth" {
				kinds[e.Kind]++
			}
			return true, nil
		})
	})
	for _, k := range query.Carried() {
		if kinds[k.Name] == 0 {
			t.Errorf("the fixture has no entry of kind %s", k.Name)
		}
	}
	now := old.next("a")
	report := now.bring(old)
	if !maps.Equal(report.Brought, kinds) || report.Own != 1 || len(report.Left) > 0 || !report.Complete() || report.Entries != entries || report.Blobs != 1 || report.Renamed != 0 {
		t.Errorf("report %+v, want %v of %d", report, kinds, entries)
	}
	sameReading(t, old.reading(now.wall), now.reading(now.wall))
	digests := now.log.Views()
	again := now.bring(old)
	if again.Again != again.Total() || again.Total() != report.Total() {
		t.Errorf("again: %+v", again)
	}
	if !slices.Equal(digests, now.log.Views()) {
		t.Error("a second time has changed the views")
	}
	// Nothing is owed for what was lost and told before.
	now.view(func(s oplog.Snapshot) error {
		ops, _, err := claim.React(s, claim.Horizon{Now: time.UnixMilli(now.wall), Self: now.log.Self().ID})
		if len(ops) > 0 {
			t.Errorf("%d superseded acks are owed again", len(ops))
		}
		return err
	})
}

// TestBring_Label: under another label the machine's agents keep what is
// theirs under their new names.
func TestBring_Label(t *testing.T) {
	old := open(t, 0)
	old.life()
	now := old.next("laptop")
	report := now.bring(old)
	if !report.Complete() || report.Renamed != report.Total() {
		t.Errorf("report %+v", report)
	}
	before := regexp.MustCompile(`"a(:|-helper)`).ReplaceAllString(old.reading(now.wall), `"laptop$1`)
	before = strings.ReplaceAll(before, `"Host":"a"`, `"Host":"laptop"`)
	sameReading(t, before, now.reading(now.wall))
	now.view(func(s oplog.Snapshot) error {
		former, err := minted.Former(s, "laptop", "helper")
		if !slices.Equal(former, []string{"a-helper"}) {
			t.Errorf("former names %v", former)
		}
		return err
	})
}

// TestBring_Audience: the names of a broadcast's audience are in order again
// after some have changed, or the message would be in no mailbox.
func TestBring_Audience(t *testing.T) {
	old := open(t, 0)
	for _, who := range []string{"a:owner:x", "a-helper", "b-tool"} {
		old.must(logstream.NewOp(who, logstream.Event{Type: "note", Stream: "s", Room: "r"}))
	}
	old.mail("a:owner:x", mailbox.Draft{To: mailbox.Everybody, Subject: "all", Body: "everybody"})
	now := old.next("laptop")
	if report := now.bring(old); !report.Complete() {
		t.Errorf("%+v", report)
	}
	now.view(func(s oplog.Snapshot) error {
		for _, who := range []string{"laptop-helper", "b-tool"} {
			page, err := mailbox.List(s, mailbox.Query{Owner: who})
			if err != nil || page.Count != 1 {
				t.Errorf("%s: %d messages, %v", who, page.Count, err)
			}
		}
		return nil
	})
}

// TestBring_Crash: whenever it is cut off, before an append or after it, the
// next run leaves each entry once.
func TestBring_Crash(t *testing.T) {
	old := open(t, 0)
	old.life()
	for i := range 12 { // several batches
		old.must(logstream.NewOp("a:owner:x", logstream.Event{Type: "note", Stream: "s", Room: "r", Body: strings.Repeat(fmt.Sprint(i), 60_000)}))
	}
	whole := old.next("a")
	report := whole.bring(old)
	want := whole.reading(whole.wall)
	cuts := 0
	for n := 0; ; n++ {
		now := old.next("a")
		to := &into{replica: now, before: 1 << 30, after: 1 << 30}
		if n%2 == 0 {
			to.before = n / 2
		} else {
			to.after = n / 2
		}
		_, err := carried.Bring(context.Background(), to, old.log, options("a", "a"))
		if err == nil {
			break
		}
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		cuts++
		if got := now.bring(old); !reflect.DeepEqual(got.Brought, report.Brought) || !got.Complete() {
			t.Errorf("cut %d: %+v", n, got)
		}
		if now.log.Frontier().Total() != whole.log.Frontier().Total() {
			t.Errorf("cut %d: %d entries, want %d", n, now.log.Frontier().Total(), whole.log.Frontier().Total())
		}
		sameReading(t, want, now.reading(whole.wall))
	}
	if cuts < 4 {
		t.Errorf("only %d cuts", cuts)
	}
}

// TestBring_Accounts: what is erased, and what the new log does not take, is
// counted with the reason; the rest goes in.
func TestBring_Accounts(t *testing.T) {
	old := open(t, 0)
	fact := old.must(memory.NewAdd("a:owner:x", memory.Fact{Namespace: "n", Text: "secret"}))
	old.must(logstream.NewOp("a:owner:x", logstream.Event{Type: "note", Stream: "s", Room: "r", Body: "first"}))
	old.must(summary.NewOp("a:owner:x", summary.Summary{Title: "t", Text: "x"}))
	if _, err := old.log.Erase(context.Background(), "a:owner:x", "", "why", fact.Hash); err != nil {
		t.Fatal(err)
	}
	old.must(logstream.NewOp("a:owner:x", logstream.Event{Type: "note", Stream: "s", Room: "r", Body: "second"}))

	opt := options("a", "a")
	for i := range opt.Kinds {
		if k := &opt.Kinds[i]; k.Name == summary.Kind {
			k.Body = func(*oplog.Entry, *carried.Map) ([]byte, error) { return nil, oplog.Quarantine("not this one") }
		}
	}
	now := old.next("a")
	report, err := carried.Bring(context.Background(), &into{replica: now, before: 1 << 30, after: 1 << 30}, old.log, opt)
	if err != nil {
		t.Fatal(err)
	}
	want := []carried.Left{{Kind: "fact", Reason: "erased", Count: 1}, {Kind: "summary", Reason: "refused: not this one", Count: 1, Lost: true}}
	if !slices.Equal(report.Left, want) || report.Brought["event"] != 2 || report.Complete() || report.Total()+report.Own+2 != report.Entries {
		t.Errorf("%+v", report)
	}
	if report := old.next("a").bring(old); !report.Complete() || report.Brought["summary"] != 1 {
		t.Errorf("%+v: erased entries are not missed", report)
	}
	// A kind that nothing knows how to carry is never left in silence.
	opt.Kinds = opt.Kinds[1:]
	report, err = carried.Bring(context.Background(), &into{replica: old.next("a"), before: 1 << 30, after: 1 << 30}, old.log, opt)
	if err != nil || report.Complete() || report.Brought["event"] != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// lax is a fold that takes any fact.
type lax struct{}

func (lax) Name() string                       { return "lax" }
func (lax) Version() uint32                    { return 1 }
func (lax) Kinds() []string                    { return []string{"fact"} }
func (lax) Apply(oplog.Tx, *oplog.Entry) error { return nil }

// TestBring_QuarantinedIsNotLostInSilence: an entry that no view takes is
// counted with its reason, and the old store is still wanted.
func TestBring_QuarantinedIsNotLostInSilence(t *testing.T) {
	odd, err := oplog.Open(context.Background(), oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(append(make([]byte, 31), 9)), Wall: func() int64 { return start },
		Rand: rand.New(rand.NewSource(9)), Projections: []oplog.Projection{lax{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { odd.Close() })
	if _, err := odd.Append(context.Background(), oplog.Op{Kind: "fact", Author: "a:owner:x", Body: []byte{0x01}}); err != nil {
		t.Fatal(err)
	}
	old := open(t, 0)
	old.pull(&replica{t: t, log: odd})
	old.must(logstream.NewOp("a:owner:x", logstream.Event{Type: "note", Stream: "s", Room: "r"}))
	report := old.next("a").bring(old)
	if len(report.Left) != 1 || report.Left[0].Kind != "fact" || !strings.HasPrefix(report.Left[0].Reason, "in quarantine: ") || report.Left[0].Count != 1 ||
		report.Complete() || report.Brought["event"] != 1 {
		t.Errorf("%+v", report)
	}
}

// TestBring_ImportedRowsCountOnce: a row that both logs have imported counts
// once, whoever brings it.
func TestBring_ImportedRowsCountOnce(t *testing.T) {
	key := imported.Key{Source: "beads", ID: "bd-9", Part: "summary"}
	old := open(t, 0)
	old.must(summary.NewOp("a:owner:x", summary.Summary{Title: "t", Text: "x", Import: key}))
	now := old.next("a")
	now.must(summary.NewOp("b:owner:x", summary.Summary{Title: "t", Text: "x", Import: key}))
	now.bring(old)
	now.view(func(s oplog.Snapshot) error {
		page, err := summary.List(s, summary.Query{Filter: identity.Filter{All: true}})
		if page.Total != 1 {
			t.Errorf("%d summaries", page.Total)
		}
		return err
	})
}
