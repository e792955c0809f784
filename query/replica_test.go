package query_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/claim"
	"tallystick/query/logstream"
)

const start = 1_767_225_600_000

// replica is a log in memory with the default folds and a clock of its own.
type replica struct {
	t    testing.TB
	log  *oplog.Log
	wall int64
	name string
}

func open(t testing.TB, seed byte) *replica {
	t.Helper()
	r := &replica{t: t, wall: start, name: string(rune('a' + seed))}
	views, _ := query.Default()
	log, err := oplog.Open(context.Background(), oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(append(make([]byte, 31), seed)),
		Wall: func() int64 { return r.wall }, Rand: rand.New(rand.NewSource(int64(seed))), Projections: views,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	r.log = log
	return r
}

func (r *replica) append(ops ...oplog.Op) ([]oplog.Appended, error) {
	r.wall++
	return r.log.Append(context.Background(), ops...)
}

func (r *replica) must(op oplog.Op, err error) oplog.Appended {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	got, err := r.append(op)
	if err != nil {
		r.t.Fatal(err)
	}
	return got[0]
}

func (r *replica) view(fn func(oplog.Snapshot) error) {
	r.t.Helper()
	if err := r.log.View(fn); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) request(correlation string) oplog.Appended {
	r.t.Helper()
	return r.must(logstream.NewOp(r.name+":owner:x", logstream.Event{
		Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Status: "open", Correlation: correlation,
	}))
}

// ack calls event_ack as the server does.
func (r *replica) ack(of oplog.Ref, agent, status string, change ...func(*claim.Input)) (oplog.Appended, error) {
	r.t.Helper()
	in := claim.Input{EventID: logstream.EventID(of), Status: status}
	for _, c := range change {
		c(&in)
	}
	var op oplog.Op
	r.view(func(s oplog.Snapshot) (err error) {
		op, _, err = claim.NewOp(s, r.log.Self(), r.name+":"+agent+":x", in)
		return err
	})
	got, err := r.append(op)
	if err != nil {
		return oplog.Appended{}, err
	}
	return got[0], nil
}

// pull brings everything of the others here.
func (r *replica) pull(others ...*replica) {
	r.t.Helper()
	for _, o := range others {
		for origin := range o.log.Frontier() {
			for {
				rg, err := o.log.ReadRange(origin, r.log.Frontier().Seq(origin), 1<<20)
				if err != nil {
					r.t.Fatal(err)
				}
				if rg.Count == 0 {
					break
				}
				if _, err := r.log.Ingest(context.Background(), rg); err != nil {
					r.t.Fatal(err)
				}
			}
		}
		r.wall = max(r.wall, o.wall)
	}
}

func (r *replica) horizon(floor hlc.Timestamp, all ...*replica) claim.Horizon {
	h := claim.Horizon{Now: time.UnixMilli(r.wall), Self: r.log.Self().ID}
	for _, o := range all {
		h.Members = append(h.Members, claim.MemberFloor{Label: o.name, Origin: o.log.Self().ID, Floor: floor, Complete: true, Self: o == r})
	}
	return h
}

func outcome(err error) string {
	var n *claim.NotTaken
	if errors.As(err, &n) {
		return n.Outcome
	}
	return fmt.Sprint(err)
}

func (r *replica) length() (n uint64) {
	r.view(func(s oplog.Snapshot) error {
		n = s.LastArrival()
		return nil
	})
	return n
}

// react runs the reactors as a replica does.
func (r *replica) react(floor hlc.Timestamp, all ...*replica) {
	r.t.Helper()
	_, reactors := query.Default()
	before := r.length()
	for _, re := range reactors {
		var ops []oplog.Op
		r.view(func(s oplog.Snapshot) (err error) {
			env := query.Env{Self: r.log.Self(), Label: r.name, Now: time.UnixMilli(r.wall), Horizon: r.horizon(floor, all...)}
			ops, _, err = re.React(s, env)
			return err
		})
		if len(ops) > 0 {
			if _, err := r.append(ops...); err != nil {
				r.t.Fatalf("%s: %v", re.Name(), err)
			}
		}
	}
	if floor == 0 && r.length() != before {
		r.t.Fatal("K1: an ack before the loss is settled")
	}
}
