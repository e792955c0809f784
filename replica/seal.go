package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"tallystick/oplog"
)

// A seal says that an incarnation is given up and where it ends (L7d). Its
// device writes it from the incarnation that goes on, once every current member
// has told what it holds of the device's origins and nothing of that is missing
// here. Until then an earlier claim of the former incarnation can still turn up,
// so claims stay provisional (K4); after it, its entries up to the seal are
// enough. What turns up beyond a seal is folded like any entry, as late truth.

// KindSeal is the kind of a seal.
const KindSeal = "tally.seal"

// sealBody seals an origin of the device. Key and Incarnation give the entry's
// own origin, as in a label; Sealed the incarnation that is given up. A forked
// origin gets a seal for each tip.
type sealBody struct {
	Key         []byte
	Incarnation []byte
	Sealed      []byte
	Seq         uint64
	Hash        []byte
}

func sealOf(e *oplog.Entry) (origin oplog.OriginID, key oplog.DeviceKey, tip oplog.Tip, err error) {
	var b sealBody
	if err := decodeBody(e, &b); err != nil {
		return origin, key, tip, err
	}
	var inc, sealed oplog.Incarnation
	if len(b.Key) != len(key) || len(b.Incarnation) != len(inc) || len(b.Sealed) != len(sealed) || len(b.Hash) != len(tip.Hash) || b.Seq == 0 {
		return origin, key, tip, oplog.Quarantine("seal with malformed fields")
	}
	copy(key[:], b.Key)
	copy(inc[:], b.Incarnation)
	copy(sealed[:], b.Sealed)
	copy(tip.Hash[:], b.Hash)
	tip.Seq = b.Seq
	switch origin = oplog.OriginOf(key, sealed); {
	case oplog.OriginOf(key, inc) != e.Origin:
		return origin, key, tip, oplog.Quarantine("seal by another device")
	case origin == e.Origin:
		return origin, key, tip, oplog.Quarantine("seal of the incarnation that writes it")
	}
	return origin, key, tip, nil
}

func sealOp(self, former *oplog.Origin, tip oplog.Tip) (oplog.Op, error) {
	body, err := marshalArrays(&sealBody{self.Key[:], self.Incarnation[:], former.Incarnation[:], tip.Seq, tip.Hash[:]})
	return oplog.Op{Kind: KindSeal, Version: memberVersion, OpID: "seal:" + former.ID.String() + ":" + tip.Hash.String(), Body: body}, err
}

// applySeal keeps a row per seal and tip: a plain set, in whatever order they
// come.
func applySeal(tx oplog.Tx, e *oplog.Entry) error {
	origin, key, tip, err := sealOf(e)
	if err != nil {
		return err
	}
	ref := e.Ref()
	return tx.Set(append(append(append([]byte{'s'}, key[:]...), sealRow(origin, tip)...), ref[:]...), nil)
}

const sealRowLen = 16 + 8 + 32

func sealRow(o oplog.OriginID, t oplog.Tip) []byte {
	return append(binary.BigEndian.AppendUint64(o[:len(o):len(o)], t.Seq), t.Hash[:]...)
}

// SealsIn lists where the given-up incarnations of all devices end.
func SealsIn(views oplog.Views) (map[oplog.OriginID][]oplog.Tip, error) {
	seals := map[oplog.OriginID][]oplog.Tip{}
	err := views.View(MembersView).Scan([]byte{'s'}, nil, false, func(k, _ []byte) (bool, error) {
		if len(k) != 1+32+sealRowLen+oplog.RefSize {
			return false, fmt.Errorf("%w: seal row of %d bytes", oplog.ErrDamaged, len(k))
		}
		k = k[1+32:]
		o := oplog.OriginID(k)
		t := oplog.Tip{Seq: binary.BigEndian.Uint64(k[16:]), Hash: oplog.Hash(k[24 : 24+32])}
		if n := len(seals[o]); n == 0 || seals[o][n-1] != t {
			seals[o] = append(seals[o], t)
		}
		return true, nil
	})
	return seals, err
}

func (r *Replica) seals() (seals map[oplog.OriginID][]oplog.Tip, err error) {
	err = r.log.View(func(s oplog.Snapshot) (err error) {
		seals, err = SealsIn(s)
		return err
	})
	return seals, err
}

// holdsAll reports whether everything up to the tips of an origin is here.
func holdsAll(log *oplog.Log, o oplog.OriginID, tips []oplog.Tip) bool {
	for _, t := range tips {
		if ok, err := log.Holds(o, t); err != nil || !ok {
			return false
		}
	}
	return true
}

// sealFormer seals the former incarnations of this device of which nothing can
// be missing any more.
func (r *Replica) sealFormer(ctx context.Context) error {
	self := r.log.Self()
	var former []oplog.Origin
	for _, o := range r.log.Origins() {
		if o.Key == r.key && o.ID != self.ID && len(o.Tips) > 0 {
			former = append(former, o)
		}
	}
	if len(former) == 0 {
		return nil
	}
	seals, err := r.seals()
	if err != nil {
		return err
	}
	var heard []oplog.OriginID
	for i := range former {
		if o := &former[i]; len(seals[o.ID]) == 0 && r.heardOf(o) {
			heard = append(heard, o.ID)
		}
	}
	if len(heard) == 0 {
		return nil
	}
	// What was told of is here by now, but may have come after the tips were read.
	var ops []oplog.Op
	for _, o := range r.log.Origins() {
		if !slices.Contains(heard, o.ID) {
			continue
		}
		for _, t := range o.Tips {
			op, err := sealOp(&self, &o, t)
			if err != nil {
				return err
			}
			ops = append(ops, op)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	if err := r.settleLabel(ctx); err != nil {
		return err
	}
	if _, err := r.log.Append(ctx, ops...); err != nil {
		return storeError(r.cfg.Dir, err)
	}
	r.logger.Info("sealed former incarnations of this device", slog.Int("seals", len(ops)))
	return nil
}

// heardOf reports whether every other member has told, since this replica
// started, what it holds of an origin, and all of that is here. Nothing writes
// there any more, so what a member has not told of, another has.
func (r *Replica) heardOf(o *oplog.Origin) bool {
	told := map[oplog.DeviceKey][]oplog.Tip{}
	if !r.ask(func(Now) {
		for _, p := range r.core.peersByKey() {
			if p.status.Known {
				told[p.key] = append([]oplog.Tip{}, p.tips[o.ID]...)
			}
		}
	}) {
		return false
	}
	for _, m := range r.Members() {
		if m.Key == r.key {
			continue
		}
		tips, heard := told[m.Key]
		if !heard || !holdsAll(r.log, o.ID, tips) {
			return false
		}
	}
	return true
}

// seal is sealFormer in the background.
func (r *Replica) seal() {
	if err := r.sealFormer(r.ctx); err != nil && r.ctx.Err() == nil && !errors.Is(err, oplog.ErrClosed) {
		r.logger.Warn("former incarnations are not sealed", slog.Any("error", err))
	}
}
