package replica

import (
	"fmt"
	"strings"
	"testing"

	"tallystick/oplog"
)

// Bad input of issue 2: a store that does not open names what is in the way,
// once, and what to do.
func TestBadInput_StoreErrorsSayTheReasonOnce(t *testing.T) {
	for _, cause := range []error{oplog.ErrLocked, oplog.ErrDamaged, oplog.ErrKey, oplog.ErrNoSpace, oplog.ErrFormat} {
		err := storeError("/home/data", fmt.Errorf("%w: /home/data/FILE: the reason", cause))
		e, ok := err.(*Error)
		if !ok || e.Field != "/home/data" || e.Hint == "" || !strings.Contains(e.Message, "/home/data") {
			t.Errorf("%v: became %#v", cause, err)
		}
		if n := strings.Count(err.Error(), "the reason"); n != 1 {
			t.Errorf("%v: the reason stands %d times in %q", cause, n, err)
		}
	}
	if storeError("/home/data", nil) != nil {
		t.Error("an error of nothing")
	}
}
