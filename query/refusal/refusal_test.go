package refusal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tallystick/query/refusal"
)

func TestErrorIsFoundByCode(t *testing.T) {
	err := fmt.Errorf("append: %w", refusal.OneOf("status", strings.Repeat("é", 100), []string{"open"}))
	if !errors.Is(err, &refusal.Error{Code: refusal.InvalidArgument}) || !errors.Is(err, &refusal.Error{Code: refusal.InvalidArgument, Field: "status"}) {
		t.Error("not found by code and field")
	}
	if errors.Is(err, &refusal.Error{Code: refusal.NotFound}) || errors.Is(err, &refusal.Error{Code: refusal.InvalidArgument, Field: "room"}) {
		t.Error("found by another code or field")
	}
	e, ok := refusal.As(err)
	if !ok || e.ErrorCode() != "invalid_argument" || len(e.Message) > 200 || e.Allowed[0] != "open" {
		t.Errorf("%+v", e)
	}
	if refusal.CodeOf(errors.New("x")) != "" {
		t.Error("a plain error has a code")
	}
}

func ExampleInvalid() {
	err := refusal.Invalid("room", "name a room", "room is %s", refusal.Quote("a\nb"))
	fmt.Println(err)
	// Output: room is "a\nb"; name a room
}
