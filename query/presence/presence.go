package presence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"tallystick/oplog"
	"tallystick/query/internal/near"
)

// ViewName is the name of this domain's view.
const ViewName = "presence"

// rowAuthor is the only table: author, then the Ref of its earliest entry and
// the hour of its latest.
const rowAuthor = 'a'

const (
	hourMillis = 3_600_000
	rowLen     = oplog.RefSize + 4
)

// View folds the authors of all entries.
type View struct{}

// Name is "presence".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 1 }

// Kinds are all of them: whatever somebody writes makes them known.
func (View) Kinds() []string { return []string{"*"} }

// Apply notes the author of one entry.
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	if e.Author == "" {
		return nil // the replica's own acts
	}
	ref, hour := e.Ref(), uint32(e.Time.Millis()/hourMillis)
	key := append([]byte{rowAuthor}, e.Author...)
	row, err := tx.Get(key)
	if errors.Is(err, oplog.ErrNotFound) {
		return tx.Insert(key, encode(ref, hour))
	}
	if err != nil {
		return err
	}
	first, last, err := decode(row)
	if err != nil {
		return err
	}
	if first.Compare(ref) <= 0 && last >= hour {
		return nil
	}
	if ref.Compare(first) < 0 {
		first = ref
	}
	return tx.Set(key, encode(first, max(last, hour)))
}

func encode(first oplog.Ref, hour uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, rowLen), first[:]...), hour)
}

func decode(row []byte) (first oplog.Ref, hour uint32, err error) {
	if len(row) != rowLen {
		return first, 0, fmt.Errorf("presence: row of %d bytes", len(row))
	}
	return oplog.Ref(row[:oplog.RefSize]), binary.BigEndian.Uint32(row[oplog.RefSize:]), nil
}

// Identity is somebody who has written.
type Identity struct {
	Name  string
	First oplog.Ref // earliest entry
	Last  time.Time // begin of the hour of the latest
}

// Known reports whether an entry of that author has arrived here.
func Known(views oplog.Views, name string) (bool, error) {
	_, err := views.View(ViewName).Get(append([]byte{rowAuthor}, name...))
	if errors.Is(err, oplog.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// List gives the identities after a name, in the order of their names, at most
// limit of them.
func List(views oplog.Views, after string, limit int) ([]Identity, error) {
	var out []Identity
	start := append([]byte{rowAuthor}, after...)
	err := views.View(ViewName).Scan([]byte{rowAuthor}, start, false, func(key, row []byte) (bool, error) {
		name := string(key[1:])
		if name == after {
			return true, nil
		}
		if len(out) == limit {
			return false, nil
		}
		first, hour, err := decode(row)
		if err != nil {
			return false, err
		}
		out = append(out, Identity{Name: name, First: first, Last: time.UnixMilli(int64(hour) * hourMillis).UTC()})
		return true, nil
	})
	return out, err
}

// Near gives known names that look like one that is not known.
func Near(views oplog.Views, name string) ([]string, error) {
	list, err := List(views, "", near.MaxCandidates)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return near.Names(name, names), nil
}
