package main

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/zalando/go-keyring"
)

func TestT3_Keyring(t *testing.T) {
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	if runtime.GOOS == "linux" && newKeyring(getenv, false) != nil {
		t.Error("a keyring without a session to ask")
	}
	env["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nonexistent"
	for value, want := range map[string]bool{"": true, "os": true, "file": false} {
		env["TALLY_KEYRING"] = value
		if got := newKeyring(getenv, false) != nil; got != want {
			t.Errorf("TALLY_KEYRING=%q: keyring %v, want %v", value, got, want)
		}
		if newKeyring(getenv, true) == nil {
			t.Errorf("TALLY_KEYRING=%q: a key that is in the keyring is not looked for there", value)
		}
		if err := checkKeyring(value); err != nil {
			t.Error(err)
		}
	}
	if err := checkKeyring("gnome"); err == nil {
		t.Error("a value that says nothing is taken")
	}
	keyring.MockInit()
	ring := newKeyring(getenv, true)
	secret := []byte{0, 1, 2, 0xff}
	if err := ring.Set("tallystick test", secret); err != nil {
		t.Fatal(err)
	}
	got, err := ring.Get("tallystick test")
	if err != nil || !bytes.Equal(got, secret) {
		t.Errorf("%x, %v", got, err)
	}
	if _, err := ring.Get("another"); err == nil {
		t.Error("a secret that nobody stored")
	}
}
