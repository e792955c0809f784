package artifact

import (
	"encoding/binary"
	"fmt"
	"slices"

	"tallystick/oplog"
)

// ViewName is the name of this domain's view.
const ViewName = "artifact"

// The rows of the view.
//
//	a Ref          hash 32, size 8, kind 1: every artifact
//	h hash32 Ref   nothing: the artifacts with that content
const (
	rowAll  = 'a'
	rowHash = 'h'

	valueLen = 32 + 8 + 1
)

// View folds artifacts. It does not wait for their content.
type View struct{}

// Name is "artifact".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 1 }

// Kinds are artifacts.
func (View) Kinds() []string { return []string{Kind} }

// Content are the kinds that may be erased (T5); their blobs go with them.
func (View) Content() []string { return []string{Kind} }

// Blobs is the content that an artifact names.
func (View) Blobs(e *oplog.Entry) []oplog.BlobName {
	a, err := Decode(e)
	if err != nil {
		return nil
	}
	return []oplog.BlobName{{Hash: a.Hash, Size: a.Size}}
}

// Apply checks one entry and writes its rows.
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	a, err := Decode(e)
	if err != nil {
		return err
	}
	ref := e.Ref()
	value := binary.BigEndian.AppendUint64(append(make([]byte, 0, valueLen), a.Hash[:]...), uint64(a.Size))
	value = append(value, byte(slices.Index(kinds, a.Kind)))
	if err := tx.Insert(append([]byte{rowAll}, ref[:]...), value); err != nil {
		return err
	}
	return tx.Insert(append(append([]byte{rowHash}, a.Hash[:]...), ref[:]...), nil)
}

func refOf(key []byte, at int) (oplog.Ref, error) {
	if len(key) != at+oplog.RefSize {
		return oplog.Ref{}, fmt.Errorf("artifact: row of %d bytes", len(key))
	}
	return oplog.RefOf(key[at:])
}
