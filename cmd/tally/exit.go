package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"tallystick/oplog"
	"tallystick/replica"
	"tallystick/server"
)

// Exit codes. They are part of the contract with scripts.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitTimeout     = 5
	exitUnreachable = 6
	exitPartial     = 7
	exitInterrupted = 130
)

// exitCode maps an error's code to the exit code.
func exitCode(code server.Code) int {
	switch code {
	case server.CodeInvalidArgument, server.CodeUnknownField, server.CodeTooLarge,
		server.CodeIdentityUnbound, server.CodeIdentityMismatch, server.CodeForeignCursor:
		return exitUsage
	case server.CodeNotFound, server.CodeUnknownCursor:
		return exitNotFound
	case server.CodeConflict, server.CodeClaimHeld, server.CodeExpired, server.CodeClosed,
		server.CodeInviteUsed, server.CodeInviteExpired, server.CodeStoreLocked:
		return exitConflict
	case server.CodeTimedOut:
		return exitTimeout
	case server.CodeUnreachable, server.CodePeerRefused:
		return exitUnreachable
	}
	return exitFailure // store_damaged, key_damaged, no_space, busy, unsupported_version
}

// quiet ends the program with a code; what there was to say is said already.
type quiet struct{ code int }

func (q quiet) Error() string { return fmt.Sprintf("exit %d", q.code) }

// Causes of a context that ended: SIGINT, another stop signal, tally stop.
var (
	errInterrupt  = errors.New("interrupted")
	errTerminated = errors.New("terminated")
	errAsked      = errors.New("asked to stop")
	errHandOver   = errors.New("a newer version takes over")
)

// usage is a mistake in how the command was typed.
func usage(field, hint, format string, args ...any) *server.Error {
	return &server.Error{Code: server.CodeInvalidArgument, Field: field, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// fileError names a file that cannot be read.
func fileError(field, path string, err error) *server.Error {
	e := usage(field, "check the path and its permissions", "cannot read %s: %v", path, err)
	if errors.Is(err, fs.ErrNotExist) {
		e.Code, e.Message, e.Hint = server.CodeNotFound, "there is no file "+path, "check the path"
	}
	return e
}

// asError makes the one error object of any error.
func asError(err error) *server.Error {
	var e *server.Error
	if errors.As(err, &e) {
		return e
	}
	var r *replica.Error
	if errors.As(err, &r) {
		msg := r.Message
		if r.Err != nil {
			msg += ": " + r.Err.Error()
		}
		return &server.Error{Code: server.Code(r.Code), Message: msg, Field: r.Field, Hint: r.Hint}
	}
	var file *fs.PathError
	switch {
	case errors.Is(err, oplog.ErrNoSpace), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.As(err, &file) && outOfSpace(err):
		return &server.Error{Code: server.CodeNoSpace, Field: file.Path, Message: "the disk is full: " + err.Error(), Hint: "free some space and try again"}
	case errors.As(err, &file):
		return usage(file.Path, "check its permissions, and TALLY_HOME", "%v", err)
	}
	return server.AsError(err)
}

// codeInterrupted is the code of an error object when a person or the system
// has ended the program. No tool answers with it.
const codeInterrupted server.Code = "interrupted"

// hintInterrupted goes with it.
const hintInterrupted = "run it again; what was acknowledged is on disk"

// finish says on stderr what went wrong with a command and returns the exit
// code. With asJSON the error object is the last line.
func finish(ctx context.Context, err error, cmd *cobra.Command, stderr io.Writer, asJSON bool) int {
	var q quiet
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &q):
		return q.code
	}
	e := asError(err)
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		code := exitFailure
		if errors.Is(cause, errInterrupt) {
			code = exitInterrupted
		}
		// A wait that was ended from outside has not waited its time.
		if code == exitInterrupted || errors.Is(err, context.Canceled) || e.Code == server.CodeTimedOut {
			if asJSON {
				fmt.Fprintf(stderr, "%s\n", (&server.Error{Code: codeInterrupted, Message: cause.Error(), Hint: hintInterrupted}).JSON())
			}
			return code
		}
	}
	e = asTyped(cmd, e)
	if asJSON {
		fmt.Fprintf(stderr, "%s\n", e.JSON())
		return exitCode(e.Code)
	}
	fmt.Fprintf(stderr, "tally: %s\n", e.Message)
	allowed := strings.Join(e.Allowed, ", ")
	listed := allowed != "" && strings.Contains(e.Message, allowed)
	if allowed != "" && !listed {
		fmt.Fprintf(stderr, "  allowed: %s\n", allowed)
	}
	if e.Hint != "" && (allowed == "" || e.Hint != useAllowed) {
		fmt.Fprintf(stderr, "  %s\n", e.Hint)
	}
	return exitCode(e.Code)
}

// useAllowed is a hint that says no more than the list it goes with.
const useAllowed = "use one of the allowed values"
