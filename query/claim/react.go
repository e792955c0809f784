package claim

import (
	"encoding/json"
	"fmt"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/logstream"
)

// notice is the metadata of the ack that tells a loser.
type notice struct {
	Claim      string `json:"claim"`
	Winner     string `json:"winner"`
	WinnerHLC  string `json:"winner_hlc"`
	Rule       string `json:"rule"`
	Superseded string `json:"superseded,omitempty"` // the ack that told of the loss, when the winner counts no longer
	Automatic  bool   `json:"automatic"`
}

func noticeOf(l *loss) []byte {
	b, err := json.Marshal(notice{
		Claim: logstream.EventID(l.claim), Winner: logstream.EventID(l.winner), WinnerHLC: l.winner.Stamp().String(),
		Rule: l.rule.String(), Automatic: true,
	})
	if err != nil {
		panic(fmt.Sprintf("claim: notice does not encode: %v", err)) // only strings and a bool
	}
	return b
}

// React gives the superseded acks that this replica owes: one for each claim
// of its own device that is lost for good and settled. The op id is made of
// the claim's hash, so that an ack written twice counts once (K1).
//
// ask is the stamp of the latest claim of this device, lost or held, that is
// not settled: floors above it settle all of them. It is found anew at every
// call, so that a restart forgets no wait.
func React(snap oplog.Snapshot, h Horizon) (ops []oplog.Op, ask hlc.Timestamp, err error) {
	own := map[oplog.OriginID]bool{h.Self: true}
	for i := range h.Members {
		if h.Members[i].Self {
			own[h.Members[i].Origin] = true
		}
	}
	wait := func(t hlc.Timestamp) bool {
		grade, _ := h.Grade(t)
		if grade != Settled {
			ask = max(ask, t)
		}
		return grade != Settled
	}
	err = pending(snap.View(ViewName), func(_ taskID, l loss) error {
		if !own[l.claim.Origin()] || wait(l.claim.Time()) {
			return nil
		}
		e, err := snap.Entry(l.claim)
		if err != nil {
			return fmt.Errorf("claim: entry of a loss: %w", err)
		}
		op, err := homeAck(&e, &h, "superseded-", logstream.Ack{
			Event: logstream.Event{Status: logstream.StatusSuperseded, Metadata: noticeOf(&l)}, Claim: l.claim,
		})
		if err != nil {
			return err
		}
		ops = append(ops, op)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	err = freed(snap.View(ViewName), func(id taskID, claim, ack oplog.Ref) error {
		if !own[claim.Origin()] || wait(claim.Time()) {
			return nil
		}
		op, err := reopened(snap, id, claim, ack, &h)
		if err == nil && op != nil {
			ops = append(ops, *op)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	seen := 0
	err = heldAfter(snap.View(ViewName), h.now(), func(ref oplog.Ref, _ hlc.Timestamp) (bool, error) {
		if own[ref.Origin()] && ref.Time() > ask {
			wait(ref.Time())
		}
		seen++
		return seen < maxHeldLooked, nil
	})
	return ops, ask, err
}

// RuleVoid is the rule in the ack that tells of late truth (K4, K5): the winner to
// which a claim was given up counts no longer, as when a revoke's cut voids it.
// That ack says released, and ends nothing.
const RuleVoid = "winner_void"

// reopened makes the ack by which a home tells that a claim of its own was given
// up to one that counts no longer; nil when the task has expired.
func reopened(snap oplog.Snapshot, id taskID, claim, ack oplog.Ref, h *Horizon) (*oplog.Op, error) {
	s, _, err := verdict(snap.View(ViewName), id)
	if err != nil || h.now() >= s.expiry() {
		return nil, err
	}
	e, err := snap.Entry(claim)
	if err != nil {
		return nil, fmt.Errorf("claim: entry of a freed claim: %w", err)
	}
	told, err := snap.Entry(ack)
	if err != nil {
		return nil, fmt.Errorf("claim: superseded ack of a freed claim: %w", err)
	}
	if !e.Present() || !told.Present() {
		return nil, nil // erased: nothing can be told of it
	}
	was, err := logstream.Decode(&told)
	if err != nil {
		return nil, err
	}
	var n notice
	if err := json.Unmarshal(was.Metadata, &n); err != nil {
		n = notice{} // of an older or a foreign hand: the ack itself is named
	}
	n.Claim, n.Superseded, n.Rule, n.Automatic = logstream.EventID(claim), logstream.EventID(ack), RuleVoid, true
	meta, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("claim: notice of a freed claim: %w", err)
	}
	op, err := homeAck(&e, h, "reopened-", logstream.Ack{Event: logstream.Event{
		Status: logstream.StatusReleased, Metadata: meta,
		Body: "The claim that won counts no longer, and this one was given up to it. Nobody holds the task: claim it again.",
	}})
	return &op, err
}

// homeAck makes the ack in which a home tells an agent what has become of its
// claim. The op id is made of the claim's hash: written again it counts once.
func homeAck(claim *oplog.Entry, h *Horizon, prefix string, ack logstream.Ack) (oplog.Op, error) {
	raw, err := logstream.Decode(claim)
	if err != nil {
		return oplog.Op{}, err
	}
	author := under(claim.Author, h.Label)
	ack.Stream, ack.Room, ack.Topic, ack.To = string(raw.Stream), string(raw.Room), string(raw.Topic), author
	ack.Correlation, ack.Task, ack.Of, ack.Automatic = string(raw.Correlation), string(raw.Task), claim.Ref(), true
	op, err := logstream.NewAckOp(author, ack)
	if err != nil {
		return op, fmt.Errorf("claim: %s ack: %w", ack.Status, err)
	}
	op.OpID = prefix + claim.Hash.String()
	return op, nil
}

// maxHeldLooked bounds how many live claims one reaction looks through. Those
// beyond it are asked for when they are claimed, and once those before end.
const maxHeldLooked = 10_000

// Notices are the losses of an identity that are not told by an ack yet, as
// computed records for its inbox.
func Notices(snap oplog.Snapshot, identity string, h Horizon, label logstream.Labeler) ([]Notice, error) {
	var out []Notice
	err := pending(snap.View(ViewName), func(_ taskID, l loss) error {
		e, err := snap.Entry(l.claim)
		if err != nil {
			return fmt.Errorf("claim: entry of a loss: %w", err)
		}
		if !isOf(identity, e.Author, l.claim.Origin(), label) {
			return nil
		}
		n, err := noticeRecord(snap, &l, &e, &h, identity, label)
		if err == nil {
			out = append(out, n)
		}
		return err
	})
	return out, err
}

// Notice is a computed inbox row, and the local arrival number of the later
// of the two entries that caused it.
type Notice struct {
	logstream.Record
	Arrival uint64
}

func noticeRecord(snap oplog.Snapshot, l *loss, e *oplog.Entry, h *Horizon, identity string, label logstream.Labeler) (n Notice, err error) {
	r, err := logstream.NewRecord(snap, e, label)
	if err != nil {
		return n, err
	}
	for _, ref := range []oplog.Ref{l.claim, l.winner} {
		a, err := snap.Arrival(ref)
		if err != nil {
			return n, err
		}
		n.Arrival = max(n.Arrival, a)
	}
	var ack []byte
	ack = fmt.Appendf(ack, "{%q:%q,", "ack_of", r.ID)
	r.Metadata = append(ack, noticeOf(l)[1:]...)
	r.ID, r.Seq, r.OriginSeq = "", "0", "0"
	r.ToAgent, r.Status, r.Body, r.Invisible = identity, logstream.StatusSuperseded, "", false
	r.Computed = true
	r.Grade, r.Unheard = h.gradeForRecord(l)
	n.Record = r
	return n, nil
}

func (h *Horizon) gradeForRecord(l *loss) (string, []string) {
	grade, unheard := h.Grade(l.claim.Time())
	var out []string
	for _, u := range unheard {
		out = append(out, u.Replica+": "+u.Reason)
	}
	return grade, out
}
