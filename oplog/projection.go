package oplog

import (
	"errors"
	"fmt"

	"tallystick/hlc"
)

// ErrNotFound is returned where a key, an entry or an id is not here.
var ErrNotFound = errors.New("oplog: not found")

// Reader reads one view: keys and values as its projection wrote them.
// Slices it hands out are valid until the enclosing transaction or snapshot
// ends and must not be changed.
type Reader interface {
	// Get returns the value, or ErrNotFound.
	Get(key []byte) ([]byte, error)
	// Scan calls fn for each key that begins with prefix, in byte order, or
	// against it when reverse. It starts at start, which counts itself; nil
	// start is the first key of the prefix (the last when reverse). fn returns
	// false to stop. fn must not write to the view it scans.
	Scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error
}

// Tx is a Reader that sees its own writes. They take effect together with
// the entry that is being folded, or not at all (M2).
type Tx interface {
	Reader
	// Insert writes a key that is known not to exist. It is the cheap way to
	// write index rows, whose keys hold the entry's Ref.
	Insert(key, value []byte) error
	// Set writes a key whether it exists or not.
	Set(key, value []byte) error
	// Delete removes a key if it exists.
	Delete(key []byte) error
}

// Projection folds entries into one view. It must be a pure function of the
// set of entries: any order of Apply, any split into transactions, same rows
// (M1). Rows must hold nothing that differs from replica to replica: no
// arrival number, no wall time, no local index.
type Projection interface {
	// Name is the view's name: 1 to 16 of a-z and 0-9, unique in a log.
	Name() string
	// Version changes whenever the rows of the same entries would change; the
	// view is then rebuilt from the log.
	Version() uint32
	// Kinds are the kinds of entry to fold; "*" sees every kind, without
	// counting as understanding any.
	Kinds() []string
	// Apply folds one entry whose payload is present. A *QuarantineError sets
	// the entry aside in every view (L6); any other error is a failure of the
	// store and stops the log.
	Apply(tx Tx, e *Entry) error
}

// Content is implemented by a projection some of whose kinds are content: text
// and data that a person may want gone, and that nothing structural hangs on.
// Only such entries can be erased (T5).
type Content interface {
	Content() []string
}

// QuarantineError is what a projection returns for an entry that cannot be
// folded: malformed, over a limit, an unknown payload version.
type QuarantineError struct{ Reason string }

func (e *QuarantineError) Error() string { return "oplog: quarantined: " + e.Reason }

// Quarantine builds a QuarantineError.
func Quarantine(format string, args ...any) error {
	return &QuarantineError{Reason: fmt.Sprintf(format, args...)}
}

// Decision is what a Gate says of an entry before it is folded.
type Decision struct {
	// Hold keeps the entry stored and relayed but out of all views until the
	// gate lets it pass; Reason says why, for people.
	Hold bool
	// Quarantine sets it aside for good, for this version.
	Quarantine bool
	Reason     string
}

// Gate decides whether an entry may be folded: whether its device is
// admitted, and whether its author fits its origin's label (I9). It reads the
// views as they stand in the transaction. The log asks again for held entries
// after every transaction in which one of RecheckKinds was folded.
type Gate interface {
	Decide(views Views, origin *Origin, e *Entry) (Decision, error)
	RecheckKinds() []string
}

// Views gives the views of one snapshot or transaction by name.
type Views interface {
	// View returns the view of that name; an unknown name reads as empty.
	View(name string) Reader
}

// Snapshot is a consistent reading of the log and all views. Entries it
// returns are copies the caller owns.
type Snapshot interface {
	Views
	// Entry returns the entry a Ref names, or ErrNotFound.
	Entry(ref Ref) (Entry, error)
	// ByHash returns the entry whose hash begins with prefix (at least 6
	// bytes), or ErrNotFound. Of several the earliest in C2 order.
	ByHash(prefix []byte) (Entry, error)
	// ByOp returns the first result of a client op id, or ErrNotFound.
	ByOp(author, opID string) (Entry, error)
	// Arrival is the local arrival number of an entry: 1, 2, 3... in the order
	// in which entries became visible here; 0 while it is held, quarantined or
	// unknown.
	Arrival(ref Ref) (uint64, error)
	// LastArrival is the highest arrival number given so far.
	LastArrival() uint64
	// Arrived calls fn for visible entries with arrival numbers above after,
	// in order, or for those up to before, against the order, when reverse
	// (then after is the highest to give; 0 means from the newest).
	Arrived(after uint64, reverse bool, fn func(arrival uint64, e *Entry) (bool, error)) error
}

// Results finds what became of an op. A Snapshot does, and so do the Views that
// Guard and Make of an Op are given: there the ops before it in the same Append
// are found already.
type Results interface {
	// ByOp returns the first result of a client op id, or ErrNotFound.
	ByOp(author, opID string) (Entry, error)
}

// Op is a change asked for by a local writer.
type Op struct {
	Kind    string
	Author  string
	Version uint64 // payload version
	OpID    string // client op id; a repeat from the same author gets the first result (A2)
	Body    []byte // msgpack of the domain
	// Guard, when set, runs in the single writer against the views as they
	// stand, right before the entry is stamped, with the stamp it will get. An
	// error refuses the whole Append and is returned as it is.
	Guard func(views Views, stamp hlc.Timestamp) error
	// Make, when set, is called in the writer after Guard and gives the body,
	// for bodies that depend on the views or on the stamp.
	Make func(views Views, stamp hlc.Timestamp) ([]byte, error)
}

// Appended is what became of an Op.
type Appended struct {
	Ref      Ref
	Hash     Hash
	Arrival  uint64
	Replayed bool // the op id was known: this is the first result
}

// Origin is what the log knows of an origin.
type Origin struct {
	ID          OriginID
	Key         DeviceKey
	Incarnation Incarnation
	Tips        []Tip // one, or several when the origin has forked (L7c)
	Head        Head  // latest signed head whose tip is held, of the longest branch; zero if none
	LastTime    hlc.Timestamp
	Self        bool
	Broken      *BrokenPromise // a floor that it has not kept; nil mostly. Its floors promise nothing (K4)
}

// Forked reports whether two branches of the origin are held. The floors of a
// forked origin promise nothing (K4).
func (o *Origin) Forked() bool { return len(o.Tips) > 1 }

// Range is a run of entries of one origin that ends at a signed head: the
// unit of transfer. Entries are concatenated encodings.
type Range struct {
	Origin  OriginID
	First   uint64 // seq of the first entry
	Count   int
	Entries []byte
	Head    Head
}

// Aside is an entry that is stored and relayed but in no view.
type Aside struct {
	Ref    Ref
	Kind   string
	Author string
	Reason string
	Held   bool // waits for its time or its device's admission
	Owed   bool // waits for its payload; none of these: quarantined
	Beyond bool // void: beyond the cut of a device that was revoked or has left
}

// ViewInfo describes a view: a digest of its rows that does not depend on
// their order of arrival, equal on replicas that hold the same, and how many
// rows there are.
type ViewInfo struct {
	Name   string
	Digest string // 32 hex digits
	Rows   uint64
}
