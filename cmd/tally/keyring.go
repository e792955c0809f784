package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/zalando/go-keyring"

	"tallystick/replica"
	"tallystick/server"
)

// osKeyring keeps the store's key in the desktop's keyring (T3): the secret
// service, the macOS keychain or the Windows credential store.
type osKeyring struct{ user string }

// keyringPatience bounds a keyring that asks a person and gets no answer.
const keyringPatience = 10 * time.Second

var errKeyringSlow = errors.New("the keyring did not answer in time")

// Values of TALLY_KEYRING.
const (
	keyringAuto = ""     // the system's keyring where one answers, else a file
	keyringOS   = "os"   // the same, said aloud
	keyringFile = "file" // a file: the replica opens with nobody logged in
)

// newKeyring is the system's keyring, which T3 asks first (docs/adr/005), or nil:
// where TALLY_KEYRING=file, and where there is no session to ask, since asking
// would start a message bus of its own. held tells that the store's key is in
// the keyring already; then it is looked for whatever the variable says.
func newKeyring(getenv func(string) string, held bool) replica.Keyring {
	if getenv("TALLY_KEYRING") == keyringFile && !held {
		return nil
	}
	if runtime.GOOS != "darwin" && runtime.GOOS != "windows" && getenv("DBUS_SESSION_BUS_ADDRESS") == "" {
		return nil
	}
	return osKeyring{user: fmt.Sprint(os.Getuid())}
}

// checkKeyring refuses a value of TALLY_KEYRING that says nothing.
func checkKeyring(value string) error {
	switch value {
	case keyringAuto, keyringOS, keyringFile:
		return nil
	}
	return &server.Error{Code: server.CodeInvalidArgument, Field: "TALLY_KEYRING", Message: fmt.Sprintf("TALLY_KEYRING is %q", value),
		Allowed: []string{keyringOS, keyringFile}, Hint: "os keeps the store's key in the system's keyring where one answers, as without the variable; file keeps it in a file that only you can read"}
}

func (k osKeyring) Set(name string, secret []byte) error {
	_, err := k.within(func() (string, error) {
		return "", keyring.Set(name, k.user, base64.StdEncoding.EncodeToString(secret))
	})
	return err
}

func (k osKeyring) Get(name string) ([]byte, error) {
	text, err := k.within(func() (string, error) { return keyring.Get(name, k.user) })
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(text)
}

// within asks on a goroutine of its own, which ends when the keyring does.
func (k osKeyring) within(ask func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	ch := make(chan answer, 1)
	go func() {
		text, err := ask()
		ch <- answer{text, err}
	}()
	select {
	case a := <-ch:
		return a.text, a.err
	case <-time.After(keyringPatience):
		return "", errKeyringSlow
	}
}
