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
)

// osKeyring keeps the store's key in the desktop's keyring (T3): the secret
// service, the macOS keychain or the Windows credential store.
type osKeyring struct{ user string }

// keyringPatience bounds a keyring that asks a person and gets no answer.
const keyringPatience = 10 * time.Second

var errKeyringSlow = errors.New("the keyring did not answer in time")

// newKeyring is nil unless TALLY_KEYRING=os asks for it (docs/adr/005), and
// where there is no keyring to speak to: asking for one without a session
// would start a message bus of its own.
func newKeyring(getenv func(string) string) replica.Keyring {
	if getenv("TALLY_KEYRING") != "os" {
		return nil
	}
	if runtime.GOOS != "darwin" && runtime.GOOS != "windows" && getenv("DBUS_SESSION_BUS_ADDRESS") == "" {
		return nil
	}
	return osKeyring{user: fmt.Sprint(os.Getuid())}
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
