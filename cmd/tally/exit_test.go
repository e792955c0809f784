package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/replica"
	"tallystick/server"
)

// The exit codes are a contract with scripts: every error code has one.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{&server.Error{Code: server.CodeInvalidArgument}, exitUsage},
		{&server.Error{Code: server.CodeUnknownField}, exitUsage},
		{&server.Error{Code: server.CodeTooLarge}, exitUsage},
		{&server.Error{Code: server.CodeIdentityUnbound}, exitUsage},
		{&server.Error{Code: server.CodeIdentityMismatch}, exitUsage},
		{&server.Error{Code: server.CodeForeignCursor}, exitUsage},
		{&server.Error{Code: server.CodeNotFound}, exitNotFound},
		{&server.Error{Code: server.CodeUnknownCursor}, exitNotFound},
		{&server.Error{Code: server.CodeConflict}, exitConflict},
		{&server.Error{Code: server.CodeClaimHeld}, exitConflict},
		{&server.Error{Code: server.CodeExpired}, exitConflict},
		{&server.Error{Code: server.CodeClosed}, exitConflict},
		{&server.Error{Code: server.CodeInviteUsed}, exitConflict},
		{&server.Error{Code: server.CodeInviteExpired}, exitConflict},
		{&server.Error{Code: server.CodeStoreLocked}, exitConflict},
		{&server.Error{Code: server.CodeTimedOut}, exitTimeout},
		{&server.Error{Code: server.CodeUnreachable}, exitUnreachable},
		{&server.Error{Code: server.CodePeerRefused}, exitUnreachable},
		{&server.Error{Code: server.CodeStoreDamaged}, exitFailure},
		{&server.Error{Code: server.CodeKeyDamaged}, exitFailure},
		{&server.Error{Code: server.CodeNoSpace}, exitFailure},
		{&server.Error{Code: server.CodeBusy}, exitFailure},
		{&server.Error{Code: server.CodeUnsupportedVersion}, exitFailure},
		{fmt.Errorf("open: %w", &replica.Error{Code: replica.CodeStoreLocked, Message: "taken"}), exitConflict},
		{fmt.Errorf("append: %w", oplog.ErrNoSpace), exitFailure},
		{fmt.Errorf("make: %w", &fs.PathError{Op: "mkdir", Path: "/x", Err: fs.ErrPermission}), exitUsage},
		{quiet{exitPartial}, exitPartial},
		{errors.New("anything else"), exitFailure},
	} {
		var out bytes.Buffer
		if got := finish(context.Background(), c.err, nil, &out, true); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
		if _, isObject := server.ParseError(out.Bytes()); isObject != (c.err != nil && !errors.As(c.err, new(quiet))) {
			t.Errorf("%v: stderr is %q", c.err, out.String())
		}
	}
}

func TestInterruptedIs130(t *testing.T) {
	for cause, want := range map[error]int{errInterrupt: exitInterrupted, errTerminated: exitFailure} {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		var out bytes.Buffer
		if got := finish(ctx, fmt.Errorf("wait: %w", ctx.Err()), nil, &out, false); got != want || out.Len() > 0 {
			t.Errorf("%v: exit code %d (%q), want %d", cause, got, out.String(), want)
		}
		// The same through the socket, which has made an error object of it.
		if got := finish(ctx, server.AsError(ctx.Err()), nil, &out, false); got != want || out.Len() > 0 {
			t.Errorf("%v through the socket: exit code %d (%q), want %d", cause, got, out.String(), want)
		}
	}
}

// Text of others reaches a terminal without its control characters.
func TestT4_TerminalTextIsTame(t *testing.T) {
	hostile := "a\x1b[2Jb\u202Ec\rd\x07\u200Be"
	for _, got := range []string{oneLine(hostile, 80), block(hostile, "")} {
		if strings.ContainsAny(got, "\x1b\r\x07\u202E\u200B") {
			t.Errorf("%q still holds control characters", got)
		}
	}
	if got := oneLine("äöü", 2); got != "äö..." {
		t.Errorf("oneLine cut to %q", got)
	}
}
