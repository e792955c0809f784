package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/refusal"
)

// brokenLog fails every append in a given way.
type brokenLog struct {
	Log
	err error
}

func (l brokenLog) Append(context.Context, ...oplog.Op) ([]oplog.Appended, error) { return nil, l.err }

// TestErrors: every failure of the layers below has a code, says what to do,
// and is the same object everywhere.
func TestErrors(t *testing.T) {
	tests := []struct {
		err    error
		code   Code
		status int
	}{
		{fmt.Errorf("x: %w", oplog.ErrNoSpace), CodeNoSpace, 507},
		{&oplog.LimitError{Field: "append", Size: 2, Limit: 1}, CodeTooLarge, 413},
		{oplog.ErrLocked, CodeStoreLocked, 409},
		{oplog.ErrKey, CodeKeyDamaged, 500},
		{oplog.ErrDamaged, CodeStoreDamaged, 500},
		{oplog.ErrClosed, CodeUnreachable, 502},
		{oplog.ErrNotFound, CodeNotFound, 404},
		{oplog.Quarantine("odd"), CodeInvalidArgument, 400},
		{context.Canceled, CodeTimedOut, 504},
		{context.DeadlineExceeded, CodeTimedOut, 504},
		{refusal.New(refusal.ForeignCursor, "cursor", "start again", "elsewhere"), CodeForeignCursor, 400},
		{errors.New(strings.Repeat("long ", 500)), CodeBusy, 503},
	}
	e := newEnv(t)
	for _, tt := range tests {
		got := AsError(tt.err)
		if got.Code != tt.code || got.HTTPStatus() != tt.status || got.Hint == "" || len(got.Message) > 500 {
			t.Errorf("%v: %s, status %d", tt.err, got.JSON(), got.HTTPStatus())
		}
		if back, ok := ParseError(got.JSON()); !ok || back.Error() != got.Error() {
			t.Errorf("%s does not read back", got.JSON())
		}
		svc, err := New(Deps{Log: brokenLog{e.log, tt.err}, Mesh: e.mesh})
		if err != nil {
			t.Fatal(err)
		}
		broken := &env{t: t, log: e.log, svc: svc}
		if bad := broken.refused(claude, "event_append", `{"type":"status","stream":"s","room":"r"}`); bad.Code != tt.code {
			t.Errorf("%v: %s", tt.err, bad.JSON())
		}
		broken.do(claude, "event_list", `{}`) // reading goes on
	}
	for code := range httpStatus {
		if code != Code(strings.ToLower(string(code))) {
			t.Errorf("code %s", code)
		}
	}
	if _, ok := ParseError([]byte(`{"error":"x"}`)); ok {
		t.Error("anything is an error object")
	}
	translated, err := New(Deps{Log: brokenLog{e.log, errors.New("told")}, Mesh: e.mesh, Translate: func(err error) *Error {
		return fail(CodePeerRefused, "", "hint", "%v", err)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if bad := (&env{t: t, svc: translated}).refused(claude, "add_summary", `{"title":"t","summary":"s"}`); bad.Code != CodePeerRefused {
		t.Errorf("%s", bad.JSON())
	}
	if _, err := New(Deps{}); err == nil {
		t.Error("a service without a log")
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range toolCases {
		f.Add(c.tool, []byte(c.good))
		f.Add(c.tool, []byte(c.bad))
	}
	f.Add("event_append", []byte(`{"type":"\ud83d\ude00","body":"\ud83d"}`))
	f.Fuzz(func(t *testing.T, name string, raw []byte) {
		tool := toolByName(name)
		if tool == nil {
			return
		}
		args, bad := tool.decode(raw)
		if bad != nil {
			if bad.Code == "" || bad.Hint == "" || len(bad.Message) > 500 {
				t.Errorf("%q: %s", raw, bad.JSON())
			}
			return
		}
		for field := range args {
			if tool.param(field) == nil {
				t.Errorf("%q: field %s came through", raw, field)
			}
		}
	})
}
