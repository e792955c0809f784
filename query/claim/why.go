package claim

import (
	"fmt"
	"strings"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Verdict is what the replay made of one claim, with both stamps.
type Verdict struct {
	Event   string    `json:"event"` // the claiming ack
	By      string    `json:"by"`
	Origin  string    `json:"origin"` // label of its replica
	HLC     string    `json:"hlc"`
	At      string    `json:"at"`
	Outcome string    `json:"outcome"` // won, joined, lost or void
	Rule    string    `json:"rule,omitempty"`
	Against string    `json:"against,omitempty"` // event id of what it lost to
	WonBy   string    `json:"won_by,omitempty"`
	Winner  string    `json:"winner_hlc,omitempty"`
	Grade   string    `json:"grade"`
	Unheard []Unheard `json:"unheard"`
}

// Explanation says how the holder of a task was decided.
type Explanation struct {
	Task     string    `json:"task"` // correlation id, or the request's event id
	Stream   string    `json:"stream"`
	Request  string    `json:"request,omitempty"`
	State    string    `json:"state"`    // in words
	Verdicts []Verdict `json:"verdicts"` // in the order of the stamps; the latest maxVerdicts
	Omitted  int       `json:"omitted,omitempty"`
	Lines    []string  `json:"lines"` // the same for people
}

// Void is the outcome of a claim by a device that was revoked or had left.
const Void = "void"

// maxVerdicts is how many claims one explanation shows.
const maxVerdicts = 20

// Explain tells in a few lines how the holder of a task was decided. The id is
// that of a claim, of any other event of the task, or its correlation.
func Explain(snap oplog.Snapshot, id string, h Horizon, label logstream.Labeler) (Explanation, error) {
	taskKey, out, err := taskNamed(snap, id)
	if err != nil {
		return out, err
	}
	r := snap.View(ViewName)
	rec, err := load(r, idOf(taskKey))
	if err != nil {
		return out, err
	}
	inputs := rec.inputs
	if rec.many {
		if inputs, err = loadInputs(r, idOf(taskKey)); err != nil {
			return out, err
		}
	}
	if err := markEnds(r, inputs); err != nil {
		return out, err
	}
	out.Verdicts = []Verdict{}
	var s state
	for _, in := range inputs {
		lost, isLoss := s.step(in)
		if in.act != actClaim && (in.act != actRenew || !isLoss && s.claim != in.ref) {
			continue
		}
		v, err := verdictOf(snap, in.ref, &h, label)
		if err != nil {
			return out, err
		}
		switch {
		case !lost.claim.IsZero():
			if err := v.lost(snap, &lost); err != nil {
				return out, err
			}
		case in.until != 0 && in.time() >= in.until:
			v.Outcome = Void
		case s.claim == in.ref:
			v.Outcome = Won
		default:
			v.Outcome = Joined
		}
		out.Verdicts = append(out.Verdicts, v)
	}
	if n := len(out.Verdicts) - maxVerdicts; n > 0 {
		out.Verdicts, out.Omitted = out.Verdicts[n:], n
	}
	t, err := Get(snap, taskKey, h, label)
	if err != nil {
		return out, err
	}
	out.Request, out.State = t.Request, t.state(&s)
	out.tell()
	return out, nil
}

// taskNamed finds the task that an id belongs to.
func taskNamed(snap oplog.Snapshot, id string) (key string, out Explanation, err error) {
	if strings.HasPrefix(id, "evt_") {
		e, err := logstream.Find(snap, "id", id)
		if err != nil {
			return "", out, err
		}
		raw, err := logstream.Decode(&e)
		if err != nil {
			return "", out, err
		}
		if !raw.Ack && !opens(&raw) && len(raw.Correlation) == 0 {
			return "", out, refusal.New(refusal.NotFound, "id", "name a claim, a request or a correlation id", "%s belongs to no task", id)
		}
		out.Task, out.Stream = string(raw.Correlation), string(raw.Stream)
		if out.Task == "" {
			out.Task = id
		}
		return taskKeyOf(&raw, e.Hash), out, nil
	}
	in, first, err := logstream.StreamsOf(snap, id)
	if err != nil {
		return "", out, err
	}
	var streams []string
	for i, stream := range in {
		k := TaskKey(stream, id, imported.Key{}, oplog.Hash{})
		rec, err := load(snap.View(ViewName), idOf(k))
		if err != nil {
			return "", out, err
		}
		if rec.many || len(rec.inputs) > 0 {
			key, out.Task, out.Stream = k, id, stream
			streams = append(streams, logstream.EventID(first[i]))
		}
	}
	switch {
	case key == "":
		return "", out, refusal.New(refusal.NotFound, "id", "name a claim, a request or a correlation id; it may not have arrived here yet", "no task %s here", refusal.Quote(id))
	case len(streams) > 1:
		e := refusal.Invalid("id", "name one of its events instead", "%s is a task in several streams", refusal.Quote(id))
		e.Allowed = streams
		return "", out, e
	}
	return key, out, nil
}

func verdictOf(snap oplog.Snapshot, ref oplog.Ref, h *Horizon, label logstream.Labeler) (v Verdict, err error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return v, fmt.Errorf("claim: entry of a claim: %w", err)
	}
	v = Verdict{Event: logstream.EventID(ref), By: e.Author, HLC: ref.Stamp().String(), At: logstream.FormatTime(carried.Stamp(&e).Time())}
	if label != nil {
		v.Origin = label(ref.Origin())
	}
	v.Grade, v.Unheard = h.Grade(ref.Time())
	return v, nil
}

func (v *Verdict) lost(snap oplog.Snapshot, l *loss) error {
	w, err := snap.Entry(l.winner)
	if err != nil {
		return fmt.Errorf("claim: entry of a winner: %w", err)
	}
	v.Outcome, v.Rule, v.WonBy = "lost", l.rule.String(), w.Author
	v.Against, v.Winner = logstream.EventID(l.winner), l.winner.Stamp().String()
	return nil
}

// state says in words how a task stands.
func (t *Task) state(s *state) string {
	switch {
	case t.Closed != "":
		return "closed by " + t.Closed + " of " + t.ClosedBy
	case t.Claim != nil:
		return "held by " + t.Claim.Holder + " until " + t.Claim.LeaseEnds + ", " + t.Claim.Grade + waitsFor(t.Claim.Unheard)
	case !t.Open:
		return "expired at " + t.Expires
	case s.claim.IsZero():
		return "free; nobody has held it"
	}
	free := "free; the last claim ended at " + logstream.FormatTime(s.end.Time())
	if !s.freed.IsZero() {
		free += ", given up by " + logstream.EventID(s.freed) + " to one that counts no longer"
	}
	return free
}

func waitsFor(list []Unheard) string {
	if len(list) == 0 {
		return ""
	}
	var names []string
	for _, u := range list {
		names = append(names, u.Replica+" ("+u.Reason+")")
	}
	return "; waits for " + strings.Join(names, ", ")
}

// tell writes the lines for people.
func (e *Explanation) tell() {
	head := e.Task + " in " + e.Stream
	if e.Request != "" && e.Request != e.Task {
		head += ", asked for by " + e.Request
	}
	e.Lines = []string{head}
	if e.Omitted > 0 {
		e.Lines = append(e.Lines, fmt.Sprintf("%d earlier claims are left out", e.Omitted))
	}
	for i := range e.Verdicts {
		e.Lines = append(e.Lines, e.Verdicts[i].line())
	}
	e.Lines = append(e.Lines, "now: "+e.State)
}

func (v *Verdict) line() string {
	s := fmt.Sprintf("%s of %s at %s (%s) ", v.Event, v.By, v.HLC, v.At)
	grade := ", " + v.Grade + waitsFor(v.Unheard)
	switch v.Outcome {
	case Won:
		return s + "won: nobody held the task at that stamp" + grade
	case Void:
		return s + "claimed nothing: its device was a member no more at that stamp"
	case Joined:
		return s + "joined: the same identity on the same machine held it already"
	}
	s += fmt.Sprintf("lost to %s of %s at %s: ", v.Against, v.WonBy, v.Winner)
	switch v.Rule {
	case RuleClosed.String():
		s += "the task was closed by then"
	case RuleExpired.String():
		s += "the task had expired by then"
	default:
		s += "that one is stamped earlier and was live; the earliest stamp wins on every replica"
	}
	return s + grade
}

// LossPage lists claims that a rule discarded, in a fixed order, from behind a
// place on; next is the place behind the page, nil at the end (M3).
func LossPage(snap oplog.Snapshot, h Horizon, after []byte, limit int) (out []Loss, next []byte, err error) {
	var start, last []byte
	if after != nil {
		start = append([]byte{rowLoss}, after...)
	}
	err = snap.View(ViewName).Scan([]byte{rowLoss}, start, false, func(k, v []byte) (bool, error) {
		if len(k) != 1+16+oplog.RefSize {
			return false, errRow
		}
		if string(k[1:]) == string(after) {
			return true, nil
		}
		if len(out) == limit {
			next = last
			return false, nil
		}
		l, err := parseLoss(k[17:], v)
		if err != nil {
			return false, err
		}
		shown, err := lossOf(snap, &l, &h)
		out, last = append(out, shown), append([]byte{}, k[1:]...)
		return err == nil, err
	})
	return out, next, err
}

// UndoLoss makes the op by which a lost claim comes to its right after all, and
// says in words what it does. What the log has decided stays decided: the
// winner gives its claim up, or the loser claims anew once the task is free.
// Nobody else can do either.
func UndoLoss(snap oplog.Snapshot, self oplog.Origin, author, id string, h *Horizon) (op oplog.Op, what string, err error) {
	e, err := logstream.Find(snap, "id", id)
	if err != nil {
		return op, "", err
	}
	none := refusal.New(refusal.Conflict, "id", "list the merges again", "%s is not a claim that was lost", id)
	raw, err := logstream.Decode(&e)
	if err != nil {
		return op, "", err
	}
	if !raw.Ack {
		return op, "", none
	}
	s, losses, err := verdict(snap.View(ViewName), idOf(raw.Task))
	if err != nil {
		return op, "", err
	}
	n := len(losses) - 1
	for ; n >= 0 && losses[n].claim != e.Ref(); n-- {
	}
	if n < 0 {
		return op, "", none
	}
	if losses[n].rule != RuleEarliest || !s.closed.IsZero() {
		return op, "", refusal.New(refusal.Closed, "id", "hand the work over again with task_create", "the task of %s is closed or has expired, which is for good", id)
	}
	in := Input{EventID: id, Outlier: h.Outlier, Flagged: h.Flagged, Metadata: fmt.Appendf(nil, `{"undo_of":%q}`, id)}
	who := actorOf(author, self.Key[:])
	switch {
	case who == s.holder && s.claim == losses[n].winner:
		in.Status, in.Body = logstream.StatusReleased, "given up for "+e.Author
		what = "gave the task up; " + e.Author + " can claim it now"
	case who == losses[n].actor:
		in.Status = logstream.StatusClaimed
		what = "claimed the task anew"
	default:
		w, err := snap.Entry(losses[n].winner)
		if err != nil {
			return op, "", fmt.Errorf("claim: entry of a winner: %w", err)
		}
		hint := "let " + w.Author + " give it up with tally merges --undo " + id + ", then " + e.Author + " claim again"
		if !s.live0() || s.claim != losses[n].winner {
			hint = "the winner no longer holds the task; let " + e.Author + " claim again"
		}
		return op, "", refusal.New(refusal.IdentityMismatch, "id", hint, "only who won or lost the claim can undo that, on its own machine")
	}
	op, _, err = NewOp(snap, self, author, in)
	return op, what, err
}
