package replica

import (
	"errors"
	"fmt"

	"tallystick/oplog"
)

// Code names a class of error. The values are the codes that clients see;
// they are append-only.
type Code string

// Codes a replica returns.
const (
	CodeInvalidArgument Code = "invalid_argument"
	CodeConflict        Code = "conflict"
	CodeInviteUsed      Code = "invite_used"
	CodeInviteExpired   Code = "invite_expired"
	CodePeerRefused     Code = "peer_refused"
	CodeStoreLocked     Code = "store_locked"
	CodeStoreDamaged    Code = "store_damaged"
	CodeKeyDamaged      Code = "key_damaged"
	CodeNoSpace         Code = "no_space"
	CodeBusy            Code = "busy"
	CodeVersion         Code = "unsupported_version"
	CodeUnreachable     Code = "unreachable"
	CodeTimedOut        Code = "timed_out"
)

// Error is an error a person or a client acts on: what happened, which field
// or file it is about, and what to do next.
type Error struct {
	Code    Code
	Message string
	Field   string // argument or file
	Hint    string // what to do
	Err     error  // cause, if any
}

func (e *Error) Error() string {
	s := "replica: " + e.Message
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches another *Error by code, so that errors.Is(err, &Error{Code: c})
// works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// CodeOf returns the code of err, or "" when it carries none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// ErrClosed is returned after Close.
var ErrClosed = errors.New("replica: closed")

func errorf(code Code, field, hint, format string, args ...any) *Error {
	return &Error{Code: code, Field: field, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// storeError gives the log's errors the code and the hint a person needs.
func storeError(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, oplog.ErrLocked):
		return &Error{Code: CodeStoreLocked, Field: dir, Message: "another process owns the store in " + dir,
			Hint: "use the running owner, or stop it first", Err: err}
	case errors.Is(err, oplog.ErrDamaged):
		return &Error{Code: CodeStoreDamaged, Field: dir, Message: "the store in " + dir + " is damaged",
			Hint: "move the replica's home away, whole, and start afresh: join again from another replica, which gives back what was synced, or restore a backup; what neither holds is only in the damaged files", Err: err}
	case errors.Is(err, oplog.ErrKey):
		return &Error{Code: CodeKeyDamaged, Field: dir, Message: "the store key does not open the store in " + dir,
			Hint: "put the key file that belongs to this store back", Err: err}
	case errors.Is(err, oplog.ErrNoSpace):
		return &Error{Code: CodeNoSpace, Field: dir, Message: "not enough free disk space for the store in " + dir,
			Hint: "free some disk space and try again; nothing that was acknowledged is lost", Err: err}
	case errors.Is(err, oplog.ErrFormat):
		return &Error{Code: CodeVersion, Field: dir, Message: "the store in " + dir + " has a format this program does not read",
			Hint: "use the program version that wrote it", Err: err}
	}
	return err
}
