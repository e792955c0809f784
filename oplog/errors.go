package oplog

import (
	"errors"
	"fmt"
)

// Errors of the log. Test with errors.Is.
var (
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("oplog: log is closed")
	// ErrLocked means that another process owns the store.
	ErrLocked = errors.New("oplog: another process owns this store")
	// ErrDamaged means that stored bytes fail their checks.
	ErrDamaged = errors.New("oplog: store is damaged")
	// ErrNoSpace means that the disk is too full to write safely. Reads go on.
	ErrNoSpace = errors.New("oplog: not enough free disk space")
	// ErrTooLarge means a payload, kind, author or op id over its limit.
	ErrTooLarge = errors.New("oplog: over a limit")
	// ErrGap means that a range does not start right after what is held.
	ErrGap = errors.New("oplog: range leaves a gap")
	// ErrFork means that an origin has more branches than a frontier carries.
	ErrFork = errors.New("oplog: origin has forked too often")
	// ErrBadRange means that a range does not verify: parse, chain or
	// signature. It costs that range, not the peer (L5).
	ErrBadRange = errors.New("oplog: range does not verify")
	// ErrUnknownOrigin means that the birth of an origin is not known yet.
	ErrUnknownOrigin = errors.New("oplog: origin is not known here")
	// ErrFormat means a store of a format this program does not read.
	ErrFormat = errors.New("oplog: unknown store format")
	// ErrKey means that the encryption key does not open the store.
	ErrKey = errors.New("oplog: encryption key does not fit the store")
)

// LimitError says which limit was crossed.
type LimitError struct {
	Field string
	Size  int
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("oplog: %s of %d bytes is over the limit of %d", e.Field, e.Size, e.Limit)
}

// Is makes a LimitError an ErrTooLarge.
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }
