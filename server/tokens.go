package server

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// Tokens are the bearer tokens of the HTTP endpoint: one per identity, kept
// in one file that only its owner may read. A token without identity is an
// unbound, read-only session. It is safe for concurrent use.
type Tokens struct {
	path string

	mu   sync.Mutex
	rows []tokenRow
}

type tokenRow struct {
	Token   string `json:"token"`
	Agent   string `json:"agent,omitempty"`
	Project string `json:"project,omitempty"`
}

const (
	tokenBytes   = 32
	maxTokens    = 1024
	tokenSession = "session" // keys in the SDK's token info
	tokenRequest = "request" // the context of the HTTP request
)

// OpenTokens reads the token file. A missing file holds no tokens; one that
// others may read is refused.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	if err := t.load(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Tokens) load() error {
	info, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("server: token file: %w", err)
	}
	if openTo(info, 0o077) {
		return fail(CodeKeyDamaged, "", "run `chmod 600` on it; if others may have read it, delete it and make new tokens",
			"the token file %s is readable by others (mode %04o)", t.path, info.Mode().Perm())
	}
	b, err := ReadSmallFile(t.path, maxTokenFile)
	if errors.Is(err, errNoSmallFile) {
		return fail(CodeKeyDamaged, "", "delete it and make new tokens with `tally token`", "the token file cannot be read: %v", err)
	}
	if err != nil {
		return fmt.Errorf("server: token file: %w", err)
	}
	var rows []tokenRow
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rows); err != nil || len(rows) > maxTokens {
		return fail(CodeKeyDamaged, "", "delete it and make new tokens with `tally token`", "the token file %s cannot be read: %v", t.path, err)
	}
	for i := range rows {
		if len(rows[i].Token) < 40 {
			return fail(CodeKeyDamaged, "", "delete it and make new tokens with `tally token`", "the token file %s holds a token that is too short", t.path)
		}
	}
	t.rows = rows
	return nil
}

// Token returns the token of an identity and makes one if there is none, or
// if rotate is set, in which case the old one stops working. An unbound
// session gets the read-only token.
func (t *Tokens) Token(s Session, rotate bool) (string, error) {
	if !s.Bound {
		s = Session{}
	} else if _, err := Bind("host", s); err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := bytesCloneRows(t.rows)
	at := -1
	for i := range rows {
		if rows[i].Agent == s.Agent && rows[i].Project == s.Project {
			if !rotate {
				return rows[i].Token, nil
			}
			at = i
		}
	}
	var raw [tokenBytes]byte
	rand.Read(raw[:])
	row := tokenRow{Token: base64.RawURLEncoding.EncodeToString(raw[:]), Agent: s.Agent, Project: s.Project}
	switch {
	case at >= 0:
		rows[at] = row
	case len(rows) == maxTokens:
		return "", fail(CodeTooLarge, "", "delete the token file's rows that nobody uses", "there are %d tokens already", maxTokens)
	default:
		rows = append(rows, row)
	}
	if err := t.save(rows); err != nil {
		return "", err
	}
	t.rows = rows
	return row.Token, nil
}

// openTo reports whether others have any of these rights. Windows shows none of
// its own in a mode, which always looks open there.
func openTo(info fs.FileInfo, rights fs.FileMode) bool {
	return runtime.GOOS != "windows" && info.Mode().Perm()&rights != 0
}

func bytesCloneRows(rows []tokenRow) []tokenRow { return append([]tokenRow(nil), rows...) }

// save replaces the file in one step.
func (t *Tokens) save(rows []tokenRow) error {
	dir := filepath.Dir(t.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("server: token file: %w", err)
	}
	f, err := os.CreateTemp(dir, ".tokens-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("server: token file: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(encode(rows), '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("server: token file: %w", err)
	}
	if err := os.Rename(f.Name(), t.path); err != nil {
		return fmt.Errorf("server: token file: %w", err)
	}
	return nil
}

// lookup finds the session of a token, comparing in constant time with every
// row.
func (t *Tokens) lookup(token string) (Session, bool) {
	given := sha256.Sum256([]byte(token))
	t.mu.Lock()
	defer t.mu.Unlock()
	var s Session
	found := 0
	for i := range t.rows {
		want := sha256.Sum256([]byte(t.rows[i].Token))
		if eq := subtle.ConstantTimeCompare(given[:], want[:]); eq == 1 {
			s = Session{Agent: t.rows[i].Agent, Project: t.rows[i].Project, Bound: t.rows[i].Agent != ""}
			found |= eq
		}
	}
	return s, found == 1
}
