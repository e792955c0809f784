package server

import (
	"encoding/hex"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/memory"
	"tallystick/query/refusal"
)

// plan plans to store a row that is not here.
func (w *memoryImport) plan(snap oplog.Snapshot, r *MemoryRow, k imported.Key, op oplog.Op, count *int) error {
	h := k.Hash()
	op.OpID = "import/" + hex.EncodeToString(h[:])
	text := [2]string{r.Namespace, r.Text}
	if r.Kind != RowFact || r.Retired == nil {
		if r.Kind == RowFact {
			w.live[text] = true
		}
		w.ops = append(w.ops, planned{Op: op, count: count})
		return nil
	}
	// What retires a text retires every copy that was written before.
	copies, err := memory.Copies(snap, r.Namespace, r.Text)
	if err != nil {
		return err
	}
	if len(copies) > 0 || w.live[text] {
		w.counts.SkippedRetired++
		delete(w.seen, h)
		return nil
	}
	mark, err := memory.NewRetired(w.author, k)
	if err != nil {
		return err
	}
	mark.OpID = op.OpID + "/retired"
	w.gone[h] = true
	w.ops = append(w.ops, planned{Op: op, count: count}, planned{Op: mark, count: &w.counts.Retired, joined: true})
	return nil
}

// replaces plans to say which retired facts a fact stands in for, as far as
// that is not said here; fresh, when that fact is planned, too.
func (w *memoryImport) replaces(snap oplog.Snapshot, r *MemoryRow, by imported.Key, fresh bool) error {
	var keys []imported.Key
	for _, k := range r.Replaces {
		if k == by {
			continue
		}
		id, here, err := memory.Imported(snap, k)
		if err != nil {
			return err
		}
		if !here {
			if w.gone[k.Hash()] {
				keys = append(keys, k)
			}
			continue
		}
		rec, err := memory.Get(snap, "id", id)
		if refusal.CodeOf(err) == refusal.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		if rec.Retired != nil && rec.Retired.SupersededBy == "" {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 || w.dry {
		return nil
	}
	op, err := memory.NewReplaced(w.author, by, keys)
	if err != nil {
		w.bad(r, err)
		return nil
	}
	w.ops = append(w.ops, planned{Op: op, joined: fresh && len(w.ops) > 0, spare: true})
	return nil
}
