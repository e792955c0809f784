package claim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
)

// reopened is the metadata of the ack that tells of a winner that is none.
type reopened struct {
	Claim, Winner, Rule, Superseded string
	WinnerHLC                       string `json:"winner_hlc"`
}

func naming(lost, won oplog.Ref) ackOption {
	return func(k *logstream.Ack) {
		losing(lost)(k)
		k.Metadata = fmt.Appendf(nil, `{"claim":%q,"winner":%q,"winner_hlc":%q,"automatic":true}`,
			logstream.EventID(lost), logstream.EventID(won), won.Stamp())
	}
}

// TestK4K5_CutVoidsAWinner: c gave its claim up to b's, which was settled. Then b
// is revoked with a cut before its claim. c's home tells c once, with both sides,
// in whatever order all that arrived, with few entries on the task and with many.
func TestK4K5_CutVoidsAWinner(t *testing.T) {
	for name, keeps := range map[string]int{"few": 1, "many": 20} {
		t.Run(name, func(t *testing.T) {
			d := newDelegated(t)
			d.ack(d.b, minute+1, "b:claude:x", logstream.StatusBlocked)
			cut := d.b.log.Self()
			won := d.ack(d.b, 2*minute, "b:claude:x", logstream.StatusClaimed)
			lost := d.ack(d.c, 3*minute, "c:claude:x", logstream.StatusClaimed)
			for i := range int64(keeps) {
				d.ack(d.c, 4*minute+i, "c:claude:x", logstream.StatusReady)
			}
			told := d.ack(d.c, 5*minute, "c:claude:x", logstream.StatusSuperseded, naming(lost, won))
			gate, revoke := d.revoke(10*minute, cut)
			h := claim.Horizon{Now: time.UnixMilli(delegatedAt + 30*minute), Self: lost.Origin(), Members: []claim.MemberFloor{
				{Label: "a", Origin: d.a.log.Self().ID, Floor: revoke.Time() + 1, Complete: true},
				{Label: "c", Origin: d.c.log.Self().ID, Floor: revoke.Time() + 1, Complete: true},
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
			d.collect(10, gate, func(log *oplog.Log) {
				ops, why := react(log, h)
				if len(ops) != 1 {
					t.Fatalf("%d acks, want the one that tells c", len(ops))
				}
				op = ops[0]
				if !strings.Contains(why.State, "given up by "+logstream.EventID(told)+" to one that counts no longer") {
					t.Errorf("--why says %q", why.State)
				}
				unheard := h
				unheard.Members = []claim.MemberFloor{{Label: "a", Origin: h.Members[0].Origin, Floor: d.req.Time(), Complete: true}, h.Members[1]}
				if ops, _ := react(log, unheard); len(ops) != 0 {
					t.Error("told before it is settled")
				}
				other := h
				other.Self = d.a.log.Self().ID
				if ops, _ := react(log, other); len(ops) != 0 {
					t.Error("told by another home")
				}
			})
			// It is written, twice over as by a restored copy: told once, and no more.
			// In between c claims again, and what the copy writes does not end that.
			d.c.write(t, delegatedAt+20*minute, op.Kind, op.Author, bytes.Clone(op.Body))
			again := d.ack(d.c, 21*minute, "c:claude:x", logstream.StatusClaimed)
			d.c.write(t, delegatedAt+22*minute, op.Kind, op.Author, bytes.Clone(op.Body))
			d.collect(5, gate, func(log *oplog.Log) {
				if ops, _ := react(log, h); len(ops) != 0 {
					t.Errorf("told again: %d", len(ops))
				}
				err := log.View(func(s oplog.Snapshot) error {
					if got, err := claim.Get(s, d.task, h, nil); err != nil || got.Claim == nil || got.Claim.Event != logstream.EventID(again) {
						t.Errorf("held by %+v, %v; want the claim that came after", got.Claim, err)
					}
					page, err := logstream.List(s, logstream.Filter{To: []string{"c:claude:x"}, Status: logstream.StatusReleased})
					if err != nil {
						return err
					}
					if page.Count != 1 {
						t.Fatalf("%d in the inbox, want 1", page.Count)
					}
					var n reopened
					if err := json.Unmarshal(page.Events[0].Metadata, &n); err != nil {
						return err
					}
					want := reopened{logstream.EventID(lost), logstream.EventID(won), claim.RuleVoid, logstream.EventID(told), won.Stamp().String()}
					if n != want {
						t.Errorf("the notice lacks a side: %+v, want %+v", n, want)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestK4K5_AmendVoidsAWinner: bob gave his claim up to alice's, whose stamp an
// amend then moves behind bob's. Bob is told; alice, who claimed within bob's
// span, is a loser herself.
func TestK4K5_AmendVoidsAWinner(t *testing.T) {
	for _, many := range []int{0, 20} {
		m := newMesh(t)
		m.request(0, 0, owner, 0)
		for n := range many {
			m.ack(3, int64(1+n), carol, "blocked")
		}
		b := m.ack(2, 200, bob, "claimed")
		a := m.ack(1, 250, alice, "claimed") // was stamped 100
		m.ack(2, 300, bob, "superseded", naming(b.Ref(), oplog.MakeRef(foldtest.At(100), a.Origin, a.Seq, a.Hash)))
		m.wants(1000, "", true)
		h := m.horizon(1000)
		h.Self = b.Origin
		ops, _, err := claim.React(m.fold(m.all...), h)
		if err != nil || len(ops) != 1 || ops[0].Author != bob {
			t.Fatalf("%d more: bob is told by %d acks, %v: %+v", many, len(ops), err, ops)
		}
	}
}
