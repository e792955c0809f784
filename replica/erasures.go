package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"tallystick/oplog"
)

// An erase acts on receipt; that its bytes are off a replica's disk is known
// only there. So each replica appends a receipt once it has purged them, and
// the view "erasures" says for each erase which origins have (T5).

// KindErased is the kind of a receipt: [hash of the erase entry].
const KindErased = "tally.erased"

// ErasuresView is the name of the view of erases and their receipts.
const ErasuresView = "erasures"

const (
	erasedVersion = 0
	rowErase      = 'e' // hash of the erase entry: its Ref
	rowReceipt    = 'r' // hash of the erase entry, origin: Ref of the first receipt
)

type erasedBody struct{ Erase []byte }

// erasures folds erases and receipts: plain sets, of a repeated receipt the
// first in C2 order.
type erasures struct{}

func (erasures) Name() string    { return ErasuresView }
func (erasures) Version() uint32 { return 0 }
func (erasures) Kinds() []string { return []string{oplog.KindErase, KindErased} }

func (erasures) Apply(tx oplog.Tx, e *oplog.Entry) error {
	ref := e.Ref()
	if e.Kind == oplog.KindErase {
		return tx.Set(append([]byte{rowErase}, e.Hash[:]...), ref[:])
	}
	if e.Version != erasedVersion {
		return oplog.Quarantine("erase receipt of version %d, this program knows %d", e.Version, erasedVersion)
	}
	var b erasedBody
	if err := unmarshalArrays(e.Body, &b); err != nil || len(b.Erase) != len(oplog.Hash{}) {
		return oplog.Quarantine("erase receipt: malformed")
	}
	key := receiptKey(oplog.Hash(b.Erase), e.Origin)
	switch old, err := tx.Get(key); {
	case errors.Is(err, oplog.ErrNotFound):
	case err != nil:
		return err
	case string(old) <= string(ref[:]):
		return nil
	}
	return tx.Set(key, ref[:])
}

func receiptKey(erase oplog.Hash, origin oplog.OriginID) []byte {
	return append(append([]byte{rowReceipt}, erase[:]...), origin[:]...)
}

func erasedOp(erase oplog.Hash, self oplog.OriginID) (oplog.Op, error) {
	body, err := marshalArrays(&erasedBody{erase[:]})
	return oplog.Op{Kind: KindErased, Version: erasedVersion, OpID: "erased:" + erase.String() + ":" + self.String(), Body: body}, err
}

// EraseStatus is one erase and how far it has got.
type EraseStatus struct {
	Erase   oplog.Hash // of the erase entry
	Ref     oplog.Ref
	Hashes  []oplog.Hash // of the entries it names
	Reason  string
	Author  string
	Applied []oplog.OriginID // whose receipts are here
}

// Erasures lists erases in C2 order, with the origins that have receipted.
func Erasures(snap oplog.Snapshot) ([]EraseStatus, error) {
	view := snap.View(ErasuresView)
	var list []EraseStatus
	err := view.Scan([]byte{rowErase}, nil, false, func(k, v []byte) (bool, error) {
		ref, err := oplog.RefOf(v)
		if err != nil || len(k) != 1+32 {
			return false, fmt.Errorf("%w: erasures row", oplog.ErrDamaged)
		}
		list = append(list, EraseStatus{Erase: oplog.Hash(k[1:]), Ref: ref})
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b EraseStatus) int { return a.Ref.Compare(b.Ref) })
	for i := range list {
		s := &list[i]
		e, err := snap.Entry(s.Ref)
		if err != nil {
			return nil, err
		}
		if x, ok := oplog.ErasureOf(&e); ok {
			s.Hashes, s.Reason, s.Author = x.Hashes, x.Reason, e.Author
		}
		err = view.Scan(append([]byte{rowReceipt}, s.Erase[:]...), nil, false, func(k, _ []byte) (bool, error) {
			s.Applied = append(s.Applied, oplog.OriginID(k[1+32:]))
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Erase writes an erase of the named entries, takes their bytes out of the log
// and the views here and off this disk, and receipts that; see
// oplog.Log.Erase. Peers do the same when they hear of it.
func (r *Replica) Erase(ctx context.Context, author, opID, reason string, hashes ...oplog.Hash) (oplog.Appended, error) {
	if err := r.settleLabel(ctx); err != nil {
		return oplog.Appended{}, err
	}
	a, err := r.log.Erase(ctx, author, opID, reason, hashes...)
	if err != nil {
		return a, storeError(r.cfg.Dir, err)
	}
	return a, storeError(r.cfg.Dir, r.settleErasures(ctx))
}

// settleErasures carries out erases down to the disk (T5) and receipts those
// that this incarnation has not receipted yet: also what a crash has left
// between the log and the disk, and what was stripped on arrival.
func (r *Replica) settleErasures(ctx context.Context) error {
	r.erasing.Lock()
	defer r.erasing.Unlock()
	digest := r.erasuresDigest()
	if r.log.ErasePending() == 0 && digest == r.erased {
		return nil
	}
	self := r.log.Self().ID
	var ops []oplog.Op
	err := r.log.View(func(s oplog.Snapshot) error {
		list, err := Erasures(s)
		for _, e := range list {
			if slices.Contains(e.Applied, self) {
				continue
			}
			op, err := erasedOp(e.Erase, self)
			if err != nil {
				return err
			}
			ops = append(ops, op)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(ops) > 0 || r.log.ErasePending() > 0 {
		if err := r.log.ApplyErasures(ctx); err != nil {
			return err
		}
		if err := r.log.Purge(ctx); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(ops, oplog.MaxAppendOps) {
		if _, err := r.log.Append(ctx, chunk...); err != nil {
			return err
		}
	}
	if len(ops) == 0 {
		r.erased = digest
	}
	return nil
}

// erasuresDigest changes when an erase or a receipt comes.
func (r *Replica) erasuresDigest() string {
	for _, v := range r.log.Views() {
		if v.Name == ErasuresView {
			return v.Digest
		}
	}
	return ""
}

// erase is settleErasures in the background.
func (r *Replica) erase() {
	if err := r.settleErasures(r.ctx); err != nil && r.ctx.Err() == nil && !errors.Is(err, oplog.ErrClosed) {
		r.logger.Warn("erased entries are still on disk", slog.Any("error", err))
	}
}
