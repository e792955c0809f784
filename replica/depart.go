package replica

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"
	"unicode/utf8"

	"tallystick/oplog"
)

// How a device ceases to be a member (T2): what a person asks for, and what a
// replica does when it hears of it.

// Departed lists the devices that are no members any more.
func (r *Replica) Departed() (list []Departed, err error) {
	err = r.log.View(func(s oplog.Snapshot) (err error) {
		list, err = DepartedIn(s, r.LabelOf)
		return err
	})
	return list, err
}

// Revoke ends the membership of another device, on every replica that hears of
// it. What is held of it here counts on; what it writes, or has written and told
// nobody here, does not.
func (r *Replica) Revoke(ctx context.Context, key oplog.DeviceKey, reason, opID string) error {
	if err := r.checkMember(); err != nil {
		return err
	}
	if len(reason) > maxRevokeWords || !utf8.ValidString(reason) {
		return errorf(CodeInvalidArgument, "reason", "", "the reason must be text of at most %d bytes", maxRevokeWords)
	}
	if key == r.key {
		return errorf(CodeInvalidArgument, "name", "use `tally leave`, or revoke it from another machine", "this is the device that you are at")
	}
	if !r.isMember(key) {
		return errorf(CodeConflict, "name", "see `tally members`", "device %s is no member", shortKey(key))
	}
	op, err := RevokeOp(r.log, key, reason)
	if err != nil {
		return err
	}
	if op.OpID = opID; opID == "" {
		op.OpID = "revoke:" + key.String()
	}
	if _, err := r.Append(ctx, op); err != nil {
		return err
	}
	return r.settleEndings(ctx, byOwnAct)
}

// RevokeOp makes the entry that ends a device's membership, with cuts where log
// holds no more of it. It asks nothing else; Revoke does.
func RevokeOp(log *oplog.Log, key oplog.DeviceKey, reason string) (oplog.Op, error) {
	cuts := cutsAt(log, key, oplog.OriginID{})
	if len(cuts) > maxCuts {
		return oplog.Op{}, errorf(CodeConflict, "name", "", "the log of that device has %d branches, at most %d can be cut", len(cuts), maxCuts)
	}
	op, err := revokeOp(key, cuts, reason)
	if err != nil {
		return op, fmt.Errorf("replica: revoke: %w", err)
	}
	return op, nil
}

// Leave ends this device's own membership. It keeps its data and writes nothing
// any more. heard are the members known to hold the leave when it returns, for
// which it waits until ctx is done or one does.
func (r *Replica) Leave(ctx context.Context) (heard []string, err error) {
	if err := r.checkMember(); err != nil {
		return nil, err
	}
	if len(r.Members()) < 2 {
		return nil, errorf(CodeConflict, "", "", "there is no other member to leave")
	}
	if err := r.settleLabel(ctx); err != nil {
		return nil, err
	}
	self := r.log.Self()
	cuts := cutsAt(r.log, r.key, self.ID)
	if len(cuts) > maxCuts {
		return nil, errorf(CodeConflict, "", "let another machine revoke this one", "the log of this device has %d branches, at most %d can be told", len(cuts), maxCuts)
	}
	op, err := leaveOp(self, cuts)
	if err != nil {
		return nil, fmt.Errorf("replica: leave: %w", err)
	}
	res, err := r.log.Append(context.WithoutCancel(ctx), op)
	if err != nil {
		return nil, storeError(r.cfg.Dir, err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if heard = r.heardLeave(res[0].Ref); len(heard) > 0 {
			return heard, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, nil
		case <-r.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// heardLeave lists the members that hold this device's leave: by what they tell
// of their logs, or because they hung up for it.
func (r *Replica) heardLeave(leave oplog.Ref) []string {
	heard, _ := r.DurableOn(leave.Origin(), leave.Seq())
	members := r.Members()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range members {
		if slices.Contains(r.hungUp, m.Key) && !slices.Contains(heard, m.Label) {
			heard = append(heard, m.Label)
		}
	}
	return heard
}

// Readmit admits a device again that was suspended, since who had admitted it
// was revoked.
func (r *Replica) Readmit(ctx context.Context, key oplog.DeviceKey) error {
	list, err := r.Departed()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(list, func(d Departed) bool { return d.Key == key })
	if at < 0 || list[at].Ending.Standing != Suspended {
		return errorf(CodeConflict, "name", "see `tally members`; a device that was revoked or has left joins as a new one", "device %s is not suspended", shortKey(key))
	}
	op, err := admitOp(key, list[at].Label)
	if err != nil {
		return fmt.Errorf("replica: readmit: %w", err)
	}
	op.OpID = fmt.Sprintf("readmit:%s:%s", key, list[at].Ending.Act.Origin())
	if _, err := r.Append(ctx, op); err != nil {
		return err
	}
	return r.settleEndings(ctx, byCommit)
}

// checkMember refuses what a device that is no member any more should not do.
func (r *Replica) checkMember() error {
	e, err := r.OwnEnding()
	if err != nil || e == nil || e.Standing == Suspended && !e.Known {
		return err
	}
	return &Error{Code: CodePeerRefused, Message: e.String(), Err: oplog.ErrEnded,
		Hint: "what it holds stays readable; to write again, join as a new device from another TALLY_HOME"}
}

// endedText tells a device what has become of it.
func endedText(s Standing, by string, at time.Time, reason string) string {
	when := at.UTC().Format(time.RFC3339)
	switch s {
	case Left:
		return "this device left the mesh at " + when
	case Suspended:
		return "this device is suspended since " + when + ": who admitted it was revoked"
	}
	if by == "" {
		by = "another member"
	}
	text := "this device was revoked by " + by + " at " + when
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// occasion is why endings are looked at.
type occasion byte

const (
	byCommit occasion = iota // something new is in the log
	byTick                   // the slow tick
	byOwnAct                 // this replica has just written a revoke
)

// settleEndings lets revokes and leaves act: on the log, on connections, on the
// gossip key.
func (r *Replica) settleEndings(ctx context.Context, why occasion) error {
	r.ending.Lock()
	defer r.ending.Unlock()
	if err := r.log.ApplyEndings(ctx); err != nil {
		return storeError(r.cfg.Dir, err)
	}
	all := r.log.Endings()
	var newest uint64
	barred := map[oplog.DeviceKey]string{}
	if len(all) > 0 {
		list, err := r.Departed()
		if err != nil {
			return storeError(r.cfg.Dir, err)
		}
		for _, d := range list {
			if d.Key != r.key {
				barred[d.Key] = endedText(d.Ending.Standing, d.By, d.Ending.Act.Time().Time(), d.Reason)
				newest = max(newest, turnedEpoch(d.Ending.Act.Time().Millis()))
			}
		}
	}
	if len(barred) != r.barred || why == byOwnAct {
		r.barred = len(barred)
		r.dialer.bar(barred)
		r.post(func(now Now) Output { return r.core.Bar(now, barred) })
	}
	if _, gone := all[r.key]; gone || newest == 0 {
		return nil
	}
	return r.turnGossip(newest, why)
}

// turnGossip sees to it that the gossip key is younger than the last ending.
// Who wrote the act makes the new key at once; the others only when none came
// for a while. A key is told on only by those who have heard of the ending it
// was made for, so that nobody tells it to the device that is out.
func (r *Replica) turnGossip(newest uint64, why occasion) error {
	r.mu.Lock()
	k := r.gkey
	made := false
	if k.epoch() < newest && (why == byOwnAct || why == byTick && r.turnDue == newest) {
		var secret [32]byte
		if _, err := io.ReadFull(rand.Reader, secret[:]); err != nil {
			r.mu.Unlock()
			return fmt.Errorf("replica: draw a gossip key: %w", err)
		}
		k, _ = gossipKeyOf(newest, secret[:])
		r.gkey, made = k, true
	}
	if k.epoch() < newest {
		r.turnDue = newest
	}
	r.endingEpoch = max(r.endingEpoch, newest)
	tell := k.epoch() <= r.endingEpoch && !bytes.Equal(r.gtold[:], k[:])
	if tell {
		r.gtold = k
	}
	r.mu.Unlock()
	if made && r.gossip != nil {
		r.gossip.addKey(k, true)
	}
	if !tell {
		return nil
	}
	r.keepGossipKey()
	r.post(func(now Now) Output { return r.core.TellGossip(now, k.epoch(), k.secret()) })
	return nil
}

// keepGossipKey writes the key that is told on to its file.
func (r *Replica) keepGossipKey() {
	r.keeping.Lock()
	defer r.keeping.Unlock()
	r.mu.Lock()
	k := r.gtold
	r.mu.Unlock()
	if err := saveGossipKey(&r.cfg, k); err != nil {
		r.logger.Warn("gossip key not kept", slog.Any("error", err))
	}
}

// endings is settleEndings in the background. The slow tick is where a replica
// that did not write the act may turn the key.
func (r *Replica) endings(why occasion) {
	if err := r.settleEndings(r.ctx, why); err != nil && r.ctx.Err() == nil && !errors.Is(err, oplog.ErrClosed) {
		r.logger.Warn("revokes and leaves are not settled", slog.Any("error", err))
	}
}
