package minted_test

import (
	"slices"
	"testing"

	"tallystick/oplog"
	"tallystick/query/internal/foldtest"
	"tallystick/query/minted"
)

type speakers struct{ tx *foldtest.Tx }

func (s speakers) View(string) oplog.Reader { return s.tx }

func TestSpeakers(t *testing.T) {
	s := speakers{foldtest.NewTx()}
	for n, author := range []string{"", "nas:codex:x", "mac:claude:x", "mac:claude:x", "nas:codex:x"} {
		e := foldtest.Entry(byte(n%2), uint64(n+1), foldtest.At(int64(n)), "anything", author, nil)
		if err := (minted.Speakers{}).Apply(s.tx, &e); err != nil {
			t.Fatal(err)
		}
	}
	if names, more, err := minted.SpeakerNames(s, 10); err != nil || more || !slices.Equal(names, []string{"mac:claude:x", "nas:codex:x"}) {
		t.Errorf("%v, %v, %v", names, more, err)
	}
	if names, more, err := minted.SpeakerNames(s, 1); err != nil || !more || len(names) != 1 {
		t.Errorf("the first: %v, %v, %v", names, more, err)
	}
	for name, want := range map[string]bool{"mac:claude:x": true, "mac:claude": false, "mac:claude:xy": false, "": false} {
		if got, err := minted.Spoke(s, name); err != nil || got != want {
			t.Errorf("%q spoke: %v, %v", name, got, err)
		}
	}
	if near, err := minted.SpeakersNear(s, "mac:claud:x"); err != nil || !slices.Equal(near, []string{"mac:claude:x"}) {
		t.Errorf("near: %v, %v", near, err)
	}
}
