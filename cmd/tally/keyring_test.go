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
	env["TALLY_KEYRING"] = "os"
	if runtime.GOOS == "linux" && newKeyring(getenv) != nil {
		t.Error("a keyring without a session to ask")
	}
	env["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nonexistent"
	env["TALLY_KEYRING"] = ""
	if newKeyring(getenv) != nil {
		t.Error("a keyring that nobody asked for")
	}
	env["TALLY_KEYRING"] = "os"
	keyring.MockInit()
	ring := newKeyring(getenv)
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
