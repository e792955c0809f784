// Package refusal is the error of a call that the query layer refuses: which
// rule, which field, what would be allowed and what to do next. Everything a
// person or an agent can mend comes back as *Error; any other error is a
// failure of the store.
package refusal

import (
	"errors"
	"fmt"
)

// Code names a kind of refusal. Codes cross process borders and are
// append-only.
type Code string

// The codes this layer gives.
const (
	InvalidArgument  Code = "invalid_argument"
	TooLarge         Code = "too_large"
	IdentityUnbound  Code = "identity_unbound"
	IdentityMismatch Code = "identity_mismatch"
	NotFound         Code = "not_found"
	UnknownCursor    Code = "unknown_cursor"
	ForeignCursor    Code = "foreign_cursor"
	Conflict         Code = "conflict"
	ClaimHeld        Code = "claim_held"
	Expired          Code = "expired"
	Closed           Code = "closed"
)

// Error says why a call was refused. Nothing was stored.
type Error struct {
	Code    Code
	Field   string   // argument at fault, or empty
	Message string   // what is wrong
	Allowed []string // values that would do, when they can be listed
	Hint    string   // what to do next
}

// Error is the message and the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// ErrorCode is the code as a string, for adapters that do not import this
// package.
func (e *Error) ErrorCode() string { return string(e.Code) }

// Is makes errors.Is compare codes, so that a bare &Error{Code: c} matches.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Field == "" || t.Field == e.Field)
}

// New builds an Error.
func New(code Code, field, hint, format string, args ...any) *Error {
	return &Error{Code: code, Field: field, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// Invalid builds an InvalidArgument error about a field.
func Invalid(field, hint, format string, args ...any) *Error {
	return New(InvalidArgument, field, hint, format, args...)
}

// OneOf builds an InvalidArgument error that lists what is allowed.
func OneOf(field, got string, allowed []string) *Error {
	e := Invalid(field, "use one of the allowed values", "%s is %s", field, Quote(got))
	e.Allowed = allowed
	return e
}

// As finds the first Error in err's chain.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// CodeOf is the code of the first Error in err's chain, empty if there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Quote shows a value of a caller in a message: quoted, escaped, cut.
func Quote(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%q...", string(r[:most]))
	}
	return fmt.Sprintf("%q", s)
}
