package rawmemory

import (
	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/copies"
)

// imports are the rows of imported turns, k and d of the view.
var imports = copies.Rows{View: ViewName, Ref: func(row []byte) (oplog.Ref, error) {
	it, err := parseItem(row)
	return it.ref, err
}}

// Copy is an entry that does not count because an earlier one has the same
// import key, beside the one that counts (M3).
type Copy = copies.Copy

// Imported returns the entry that counts for an import key, and whether there
// is one.
func Imported(views oplog.Views, key imported.Key) (oplog.Ref, bool, error) {
	return imports.Counts(views.View(ViewName), key.Hash())
}

// CopyPage lists what was folded away as a copy, in a fixed order, from behind
// a place on; next is the place behind the page, nil at the end.
func CopyPage(views oplog.Views, after []byte, limit int) (out []Copy, next []byte, err error) {
	return imports.Page(views, after, limit)
}
