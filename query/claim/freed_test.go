package claim_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/logstream"
)

// TestK4K5_CutVoidsAWinner: c gave its claim up to b's, which was settled. Then b
// is revoked with a cut before its claim. c's home tells c once, with both sides,
// in whatever order all that arrived, with few entries on the task and with many.
func TestK4K5_CutVoidsAWinner(t *testing.T) {
	const start = 1_700_000_000_000
	for name, keeps := range map[string]int{"few": 1, "many": 20} {
		t.Run(name, func(t *testing.T) {
			a, b, c := newWriter(t, 'a'), newWriter(t, 'b'), newWriter(t, 'c')
			ev := logstream.Event{Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Correlation: "task_1", Status: "open"}
			req := a.write(t, start+minute, logstream.KindEvent, "a:owner:x", ev.Append(nil))
			task := claim.TaskKey(ev.Stream, ev.Correlation, imported.Key{}, oplog.Hash{})
			ack := func(w *writer, ms int64, author, status string, opts ...ackOption) oplog.Ref {
				k := logstream.Ack{Event: logstream.Event{Type: logstream.TypeAck, Stream: ev.Stream, Room: ev.Room, Correlation: ev.Correlation, Status: status},
					Task: task, Of: req}
				for _, o := range opts {
					o(&k)
				}
				return w.write(t, ms, logstream.KindAck, author, k.Append(nil))
			}
			ack(b, start+minute+1, "b:claude:x", logstream.StatusBlocked)
			cut := b.log.Self()
			won := ack(b, start+2*minute, "b:claude:x", logstream.StatusClaimed)
			lost := ack(c, start+3*minute, "c:claude:x", logstream.StatusClaimed)
			for i := range int64(keeps) {
				ack(c, start+4*minute+i, "c:claude:x", logstream.StatusReady)
			}
			told := ack(c, start+5*minute, "c:claude:x", logstream.StatusSuperseded, losing(lost), func(k *logstream.Ack) {
				k.Metadata = []byte(`{"claim":"` + logstream.EventID(lost) + `","winner":"` + logstream.EventID(won) + `","winner_hlc":"` + won.Stamp().String() + `","automatic":true}`)
			})
			revoke := a.write(t, start+10*minute, "tally.revoke", "", []byte{0x90})
			gate := ended{cut.Key: {At: revoke.Time(), Cuts: []oplog.Cut{{Origin: cut.ID, Tip: cut.Tips[0]}}, Reason: "revoked"}}
			rng := rand.New(rand.NewPCG(5, 6))
			collect := func() *oplog.Log {
				log, err := oplog.Open(context.Background(), oplog.Config{InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)),
					Gate: gate, Projections: []oplog.Projection{logstream.View{}, claim.View{}}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { log.Close() })
				queues := [][]oplog.Range{a.ranges(t), b.ranges(t), c.ranges(t)}
				for len(queues[0])+len(queues[1])+len(queues[2]) > 0 {
					if i := rng.IntN(3); len(queues[i]) > 0 {
						if _, err := log.Ingest(context.Background(), queues[i][0]); err != nil {
							t.Fatal(err)
						}
						queues[i] = queues[i][1:]
					}
				}
				return log
			}
			h := claim.Horizon{Now: time.UnixMilli(start + 30*minute), Self: lost.Origin(), Members: []claim.MemberFloor{
				{Label: "a", Origin: a.log.Self().ID, Floor: revoke.Time() + 1, Complete: true},
				{Label: "c", Origin: c.log.Self().ID, Floor: revoke.Time() + 1, Complete: true},
			}}
			react := func(log *oplog.Log, h claim.Horizon) (ops []oplog.Op, why claim.Explanation) {
				err := log.View(func(s oplog.Snapshot) (err error) {
					if ops, _, err = claim.React(s, h); err == nil {
						why, err = claim.Explain(s, "task_1", h, nil)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				return ops, why
			}
			var op oplog.Op
			digest := ""
			for range 10 {
				log := collect()
				if v := log.Views()[1].Digest; digest == "" {
					digest = v
				} else if v != digest {
					t.Fatalf("M1: view %s and %s", digest, v)
				}
				ops, why := react(log, h)
				if len(ops) != 1 {
					t.Fatalf("%d acks, want the one that tells c", len(ops))
				}
				op = ops[0]
				if !strings.Contains(why.State, "given up by "+logstream.EventID(told)+" to one that counts no longer") {
					t.Errorf("--why says %q", why.State)
				}
				unheard := h
				unheard.Members = []claim.MemberFloor{{Label: "a", Origin: h.Members[0].Origin, Floor: req.Time(), Complete: true}, h.Members[1]}
				if ops, _ := react(log, unheard); len(ops) != 0 {
					t.Error("told before it is settled")
				}
				other := h
				other.Self = a.log.Self().ID
				if ops, _ := react(log, other); len(ops) != 0 {
					t.Error("told by another home")
				}
			}
			// It is written, twice over as by a restored copy: told once, and no more.
			// In between c claims again, and what the copy writes does not end that.
			c.write(t, start+20*minute, op.Kind, op.Author, bytes.Clone(op.Body))
			again := ack(c, start+21*minute, "c:claude:x", logstream.StatusClaimed)
			c.write(t, start+22*minute, op.Kind, op.Author, bytes.Clone(op.Body))
			digest = ""
			for range 5 {
				log := collect()
				if v := log.Views()[1].Digest; digest == "" {
					digest = v
				} else if v != digest {
					t.Fatalf("M1: view %s and %s", digest, v)
				}
				if ops, _ := react(log, h); len(ops) != 0 {
					t.Errorf("told again: %d", len(ops))
				}
				err := log.View(func(s oplog.Snapshot) error {
					if got, err := claim.Get(s, task, h, nil); err != nil || got.Claim == nil || got.Claim.Event != logstream.EventID(again) {
						t.Errorf("held by %+v, %v; want the claim that came after", got.Claim, err)
					}
					page, err := logstream.List(s, logstream.Filter{To: []string{"c:claude:x"}, Status: logstream.StatusReleased})
					if err != nil {
						return err
					}
					if page.Count != 1 {
						t.Fatalf("%d in the inbox, want 1", page.Count)
					}
					var n struct {
						Claim, Winner, Rule, Superseded string
						WinnerHLC                       string `json:"winner_hlc"`
					}
					if err := json.Unmarshal(page.Events[0].Metadata, &n); err != nil {
						return err
					}
					if n.Claim != logstream.EventID(lost) || n.Winner != logstream.EventID(won) || n.WinnerHLC != won.Stamp().String() ||
						n.Rule != claim.RuleVoid || n.Superseded != logstream.EventID(told) {
						t.Errorf("the notice lacks a side: %+v", n)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
