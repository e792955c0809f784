package claim_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/logstream"
)

// ended is a gate that knows of endings, whatever the log holds.
type ended map[oplog.DeviceKey]oplog.Ending

func (ended) Decide(oplog.Views, *oplog.Origin, *oplog.Entry) (oplog.Decision, error) {
	return oplog.Decision{}, nil
}
func (ended) RecheckKinds() []string { return nil }
func (ended) Acts() []string         { return []string{"tally.revoke"} }
func (e ended) Endings(oplog.Views) (map[oplog.DeviceKey]oplog.Ending, error) {
	return e, nil
}

// writer is a device's own log, at a time of the test's choosing.
type writer struct {
	log  *oplog.Log
	wall int64
}

func newWriter(t *testing.T, seed byte) *writer {
	w := &writer{}
	log, err := oplog.Open(context.Background(), oplog.Config{InMemory: true, Signer: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32)),
		Wall: func() int64 { return w.wall }, Projections: []oplog.Projection{logstream.View{}, claim.View{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	w.log = log
	return w
}

func (w *writer) write(t *testing.T, ms int64, kind, author string, body []byte) oplog.Ref {
	t.Helper()
	w.wall = ms
	res, err := w.log.Append(context.Background(), oplog.Op{Kind: kind, Author: author, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	return res[0].Ref
}

func (w *writer) ranges(t *testing.T) (list []oplog.Range) {
	for after := uint64(0); ; {
		r, err := w.log.ReadRange(w.log.Self().ID, after, 1)
		if err != nil {
			t.Fatal(err)
		}
		if r.Count == 0 {
			return list
		}
		list, after = append(list, r), after+uint64(r.Count)
	}
}

// delegated is a task of three devices' logs, as a replica that knows of an
// ending sees it.
type delegated struct {
	t       *testing.T
	a, b, c *writer
	req     oplog.Ref
	task    string
	rng     *rand.Rand
}

const delegatedAt = 1_700_000_000_000

func newDelegated(t *testing.T) *delegated {
	d := &delegated{t: t, a: newWriter(t, 'a'), b: newWriter(t, 'b'), c: newWriter(t, 'c'), rng: rand.New(rand.NewPCG(3, 4))}
	ev := logstream.Event{Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Correlation: "task_1", Status: "open"}
	d.req = d.a.write(t, delegatedAt+minute, logstream.KindEvent, "a:owner:x", ev.Append(nil))
	d.task = claim.TaskKey(ev.Stream, ev.Correlation, imported.Key{}, oplog.Hash{})
	return d
}

func (d *delegated) ack(w *writer, ms int64, author, status string, opts ...ackOption) oplog.Ref {
	d.t.Helper()
	k := logstream.Ack{Event: logstream.Event{Type: logstream.TypeAck, Stream: "project/x", Room: "delegation", Correlation: "task_1", Status: status},
		Task: d.task, Of: d.req}
	for _, o := range opts {
		o(&k)
	}
	return w.write(d.t, delegatedAt+ms, logstream.KindAck, author, k.Append(nil))
}

// revoke ends a device at a stamp, with what it holds at cut.
func (d *delegated) revoke(ms int64, cut oplog.Origin) (gate ended, at oplog.Ref) {
	at = d.a.write(d.t, delegatedAt+ms, "tally.revoke", "", []byte{0x90})
	return ended{cut.Key: {At: at.Time(), Cuts: []oplog.Cut{{Origin: cut.ID, Tip: cut.Tips[0]}}, Reason: "revoked"}}, at
}

// collect gives all logs to new ones, each in another order: their views are
// the same (M1).
func (d *delegated) collect(times int, gate ended, look func(*oplog.Log)) {
	d.t.Helper()
	digest := ""
	for range times {
		log, err := oplog.Open(context.Background(), oplog.Config{InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)),
			Gate: gate, Projections: []oplog.Projection{logstream.View{}, claim.View{}}})
		if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { log.Close() })
		queues := [][]oplog.Range{d.a.ranges(d.t), d.b.ranges(d.t), d.c.ranges(d.t)}
		for len(queues[0])+len(queues[1])+len(queues[2]) > 0 {
			if i := d.rng.IntN(3); len(queues[i]) > 0 {
				if _, err := log.Ingest(context.Background(), queues[i][0]); err != nil {
					d.t.Fatal(err)
				}
				queues[i] = queues[i][1:]
			}
		}
		if v := log.Views()[1].Digest; digest == "" {
			digest = v
		} else if v != digest {
			d.t.Fatalf("M1: view %s and %s", digest, v)
		}
		look(log)
	}
}

// TestK1_ClaimsOfARevokedDeviceEndAtTheStamp: b holds a task for twelve hours and
// is revoked. What a claims after the revoke's stamp wins, what c claimed before
// it has lost, whatever the order in which all that arrives, with few entries on
// the task and with many. A release that lies beyond the cut changes nothing.
// --why judges the claims as the log does.
func TestK1_ClaimsOfARevokedDeviceEndAtTheStamp(t *testing.T) {
	for name, keeps := range map[string]int{"few": 1, "many": 20} {
		t.Run(name, func(t *testing.T) {
			d := newDelegated(t)
			d.ack(d.b, 2*minute, "b:claude:x", logstream.StatusClaimed)
			for i := range int64(keeps) {
				d.ack(d.b, 3*minute+i, "b:claude:x", logstream.StatusReady)
			}
			cut := d.b.log.Self()
			lost := d.ack(d.c, 5*minute, "c:claude:x", logstream.StatusClaimed)
			d.ack(d.b, 6*minute, "b:claude:x", logstream.StatusReleased) // nobody here has heard of it
			gate, _ := d.revoke(10*minute, cut)
			won := d.ack(d.a, 20*minute, "a:claude:x", logstream.StatusClaimed)
			d.collect(10, gate, func(log *oplog.Log) {
				h := claim.Horizon{Now: time.UnixMilli(delegatedAt + 30*minute)}
				err := log.View(func(s oplog.Snapshot) error {
					got, err := claim.Get(s, d.task, h, nil)
					if err != nil {
						return err
					}
					if got.Claim == nil || got.Claim.Event != logstream.EventID(won) {
						t.Errorf("held by %+v, want the claim of a", got.Claim)
					}
					if len(got.Losses) != 1 || got.Losses[0].Claim != logstream.EventID(lost) {
						t.Errorf("losses %+v, want that of c", got.Losses)
					}
					outcomes(t, s, h, claim.Won, "lost", claim.Won)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				digest := log.Views()[1].Digest
				if err := log.Rebuild(context.Background(), nil); err != nil || log.Views()[1].Digest != digest {
					t.Errorf("rebuilt: %v, view %s, want %s", err, log.Views()[1].Digest, digest)
				}
			})
		})
	}
}

// TestK1_ClaimAfterTheEndIsVoid: what a revoked device claims after the revoke's
// stamp, still before the cut, claims nothing, and --why calls it void.
func TestK1_ClaimAfterTheEndIsVoid(t *testing.T) {
	d := newDelegated(t)
	gate, _ := d.revoke(10*minute, oplog.Origin{Key: d.b.log.Self().Key, Tips: []oplog.Tip{{}}})
	d.ack(d.b, 11*minute, "b:claude:x", logstream.StatusClaimed)
	d.ack(d.b, 13*minute, "b:claude:x", logstream.StatusClaimed)
	cut := d.b.log.Self()
	end := gate[cut.Key]
	end.Cuts = []oplog.Cut{{Origin: cut.ID, Tip: cut.Tips[0]}}
	gate[cut.Key] = end
	d.ack(d.c, 12*minute, "c:claude:x", logstream.StatusClaimed)
	d.collect(5, gate, func(log *oplog.Log) {
		err := log.View(func(s oplog.Snapshot) error {
			outcomes(t, s, claim.Horizon{Now: time.UnixMilli(delegatedAt + 30*minute)}, claim.Void, claim.Won, claim.Void)
			got, err := claim.Get(s, d.task, claim.Horizon{Now: time.UnixMilli(delegatedAt + 30*minute)}, nil)
			if err == nil && len(got.Losses) != 0 {
				t.Errorf("who claims nothing loses nothing: %+v", got.Losses)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func outcomes(t *testing.T, s oplog.Snapshot, h claim.Horizon, want ...string) {
	t.Helper()
	why, err := claim.Explain(s, "task_1", h, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range why.Verdicts {
		got = append(got, v.Outcome)
	}
	if !slices.Equal(got, want) {
		t.Errorf("--why says %v, want %v: %q", got, want, why.Lines)
	}
}
