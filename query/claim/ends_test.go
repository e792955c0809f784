package claim_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"math/rand/v2"
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

// TestK1_ClaimsOfARevokedDeviceEndAtTheStamp: b holds a task for twelve hours and
// is revoked. What a claims after the revoke's stamp wins, what c claimed before
// it has lost, whatever the order in which all that arrives, with few entries on
// the task and with many. A release that lies beyond the cut changes nothing.
func TestK1_ClaimsOfARevokedDeviceEndAtTheStamp(t *testing.T) {
	const start = 1_700_000_000_000
	for name, keeps := range map[string]int{"few": 1, "many": 20} {
		t.Run(name, func(t *testing.T) {
			a, b, c := newWriter(t, 'a'), newWriter(t, 'b'), newWriter(t, 'c')
			ev := logstream.Event{Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Correlation: "task_1", Status: "open"}
			req := a.write(t, start+minute, logstream.KindEvent, "a:owner:x", ev.Append(nil))
			task := claim.TaskKey(ev.Stream, ev.Correlation, imported.Key{}, oplog.Hash{})
			ack := func(w *writer, ms int64, author, status string) oplog.Ref {
				k := logstream.Ack{Event: logstream.Event{Type: logstream.TypeAck, Stream: ev.Stream, Room: ev.Room, Correlation: ev.Correlation, Status: status},
					Task: task, Of: req}
				return w.write(t, ms, logstream.KindAck, author, k.Append(nil))
			}
			ack(b, start+2*minute, "b:claude:x", logstream.StatusClaimed)
			for i := range int64(keeps) {
				ack(b, start+3*minute+i, "b:claude:x", logstream.StatusReady)
			}
			cut := b.log.Self()
			lost := ack(c, start+5*minute, "c:claude:x", logstream.StatusClaimed)
			ack(b, start+6*minute, "b:claude:x", logstream.StatusReleased) // nobody here has heard of it
			revoke := a.write(t, start+10*minute, "tally.revoke", "", []byte{0x90})
			won := ack(a, start+20*minute, "a:claude:x", logstream.StatusClaimed)
			gate := ended{cut.Key: {At: revoke.Time(), Cuts: []oplog.Cut{{Origin: cut.ID, Tip: cut.Tips[0]}}, Reason: "revoked"}}
			rng := rand.New(rand.NewPCG(3, 4))
			digest := ""
			for range 10 {
				log, err := oplog.Open(context.Background(), oplog.Config{InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)),
					Gate: gate, Projections: []oplog.Projection{logstream.View{}, claim.View{}}})
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				queues := [][]oplog.Range{a.ranges(t), b.ranges(t), c.ranges(t)}
				for len(queues[0])+len(queues[1])+len(queues[2]) > 0 {
					if i := rng.IntN(3); len(queues[i]) > 0 {
						if _, err := log.Ingest(context.Background(), queues[i][0]); err != nil {
							t.Fatal(err)
						}
						queues[i] = queues[i][1:]
					}
				}
				if v := log.Views()[1].Digest; digest == "" {
					digest = v
				} else if v != digest {
					t.Fatalf("M1: view %s and %s", digest, v)
				}
				h := claim.Horizon{Now: time.UnixMilli(start + 30*minute)}
				err = log.View(func(s oplog.Snapshot) error {
					got, err := claim.Get(s, task, h, nil)
					if err != nil {
						return err
					}
					if got.Claim == nil || got.Claim.Event != logstream.EventID(won) {
						t.Errorf("held by %+v, want the claim of a", got.Claim)
					}
					if len(got.Losses) != 1 || got.Losses[0].Claim != logstream.EventID(lost) {
						t.Errorf("losses %+v, want that of c", got.Losses)
					}
					why, err := claim.Explain(s, logstream.EventID(won), h, nil)
					if err != nil {
						return err
					}
					if n := len(why.Verdicts); n != 3 || why.Verdicts[0].Outcome != claim.Won || why.Verdicts[1].Outcome != "lost" || why.Verdicts[2].Outcome != claim.Won {
						t.Errorf("--why: %+v", why.Lines)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := log.Rebuild(context.Background(), nil); err != nil || log.Views()[1].Digest != digest {
					t.Errorf("rebuilt: %v, view %s, want %s", err, log.Views()[1].Digest, digest)
				}
			}
		})
	}
}
