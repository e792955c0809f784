package replica

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeys_SameIdentityAgain(t *testing.T) {
	cfg := testConfig(t, "a")
	r := mustOpen(t, cfg)
	key, mesh, origin := r.key, r.Mesh(), r.Self().ID
	note(t, r, "one")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Label = "" // fixed by the admission
	r = mustOpen(t, cfg)
	if r.key != key || r.Mesh() != mesh || r.Self().ID != origin || r.Label() != "a" {
		t.Errorf("after reopening: device %s mesh %s origin %s label %s", r.key, r.Mesh(), r.Self().ID, r.Label())
	}
}

func TestKeys_FilesArePrivateAndOutsideTheData(t *testing.T) {
	cfg := testConfig(t, "a")
	mustOpen(t, cfg)
	for _, name := range []string{deviceKeyFile, storeKeyFile, gossipKeyFile} {
		st, err := os.Stat(filepath.Join(cfg.StateDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o, want 0600", name, st.Mode().Perm())
		}
	}
	cfg.StateDir = filepath.Join(cfg.Dir, "state")
	if err := cfg.Validate(); CodeOf(err) != CodeInvalidArgument {
		t.Errorf("state below data: got %v, want invalid_argument", err)
	}
}

// TestT3_DamagedKeyFileIsLoud: whatever is wrong with a key file, opening
// names the file and makes no new identity.
func TestT3_DamagedKeyFileIsLoud(t *testing.T) {
	cfg := testConfig(t, "a")
	if err := mustOpen(t, cfg).Close(); err != nil {
		t.Fatal(err)
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	for _, name := range []string{deviceKeyFile, storeKeyFile} {
		path := filepath.Join(cfg.StateDir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cases := map[string]func() error{
			"ErrFlipped":   func() error { return os.WriteFile(path, flip(bytes.Clone(good)), 0o600) },
			"ErrTruncated": func() error { return os.WriteFile(path, good[:len(good)-1], 0o600) },
			"ErrEmpty":     func() error { return os.WriteFile(path, nil, 0o600) },
			"ErrReadable":  func() error { return os.Chmod(path, 0o644) },
			"ErrGone":      func() error { return os.Remove(path) },
		}
		for what, spoil := range cases {
			t.Run(name+"/"+what, func(t *testing.T) {
				if err := spoil(); err != nil {
					t.Fatal(err)
				}
				r, err := Open(testContext(t), cfg)
				if err == nil {
					r.Close()
				}
				var e *Error
				if !errors.As(err, &e) || e.Code != CodeKeyDamaged || e.Field != path || !strings.Contains(e.Error(), path) || e.Hint == "" {
					t.Errorf("got %v, want key_damaged naming %s", err, path)
				}
				if err := os.WriteFile(path, good, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, 0o600); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	mustOpen(t, cfg)
}

func TestKeys_AnothersKeyDoesNotOpenTheStore(t *testing.T) {
	a, b := testConfig(t, "a"), testConfig(t, "b")
	for _, cfg := range []Config{a, b} {
		if err := mustOpen(t, cfg).Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{deviceKeyFile, storeKeyFile} {
		mine := filepath.Join(a.StateDir, name)
		good, err := os.ReadFile(mine)
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(filepath.Join(b.StateDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(mine, other, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Open(testContext(t), a); CodeOf(err) != CodeKeyDamaged {
			if err == nil {
				r.Close()
			}
			t.Errorf("%s of another replica: got %v, want key_damaged", name, err)
		}
		if err := os.WriteFile(mine, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestA2_SecondOwnerIsRefused(t *testing.T) {
	cfg := testConfig(t, "a")
	r := mustOpen(t, cfg)
	if second, err := Open(testContext(t), cfg); CodeOf(err) != CodeStoreLocked {
		if err == nil {
			second.Close()
		}
		t.Errorf("second owner: got %v, want store_locked", err)
	}
	note(t, r, "still up")
}

func TestMesh_FileLostOrDamaged(t *testing.T) {
	cfg := testConfig(t, "a")
	r := mustOpen(t, cfg)
	mesh := r.Mesh()
	note(t, r, "one")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(string) error{
		"Lost":    os.Remove,
		"Damaged": func(p string) error { return os.WriteFile(p, []byte("tallymsh???"), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			if err := spoil(cfg.meshFile()); err != nil {
				t.Fatal(err)
			}
			r := mustOpen(t, cfg)
			if r.Mesh() != mesh || r.Label() != "a" || len(r.Members()) != 1 {
				t.Errorf("mesh %s label %s members %d after the file was spoiled", r.Mesh(), r.Label(), len(r.Members()))
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestFile_Malformed(t *testing.T) {
	good := encodeFile(meshMagic, []byte("body"))
	if b, err := decodeFile(meshMagic, good); err != nil || string(b) != "body" {
		t.Fatalf("got %q, %v", b, err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := decodeFile(meshMagic, bad); !errors.Is(err, errFileDamaged) {
			t.Errorf("byte %d flipped: got %v", i, err)
		}
		if _, err := decodeFile(meshMagic, good[:i]); !errors.Is(err, errFileDamaged) {
			t.Errorf("cut at %d: got %v", i, err)
		}
	}
}

func TestConfig_ValidateTellsAllAtOnce(t *testing.T) {
	err := Config{Label: "No-Hyphen", Listen: "nowhere", Peers: []string{"host"}, Advertise: []string{"h:0"}}.Validate()
	for _, want := range []string{"Dir", "No-Hyphen", "Listen", "Peers", "Advertise"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}

func TestLabelOf(t *testing.T) {
	for host, want := range map[string]string{
		"My-Mac.local": "my_mac.local", "nas": "nas", "-x": "x", "": "replica", "Ünï": "n_", "日本": "replica",
		strings.Repeat("a", 40): strings.Repeat("a", 32),
	} {
		if got := LabelOf(host); got != want || CheckLabel(got) != nil {
			t.Errorf("LabelOf(%q) = %q, want %q", host, got, want)
		}
	}
}
