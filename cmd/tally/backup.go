package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tallystick/oplog"
	"tallystick/server"
)

// A backup is, inside of an age file, an opening and a pack of the log. The
// opening says of which replica it is and may hold its device key; see
// docs/format-export.md.
const (
	backupMagic   = "tallybak"
	backupVersion = 0
	maxBackupHead = 1 << 20
)

type backupHead struct {
	Label   string `json:"label"`
	Mesh    string `json:"mesh"`
	Created string `json:"created"`
	// With the device key only: the key file, and the mesh file with the proof
	// of the device's admission. The store's own key is never in a backup, nor
	// is the continuity token: a restored replica writes in a new incarnation.
	DeviceKey []byte `json:"device_key,omitempty"`
	MeshFile  []byte `json:"mesh_file,omitempty"`
}

func (h *backupHead) append(dst []byte) ([]byte, error) {
	body, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the backup's opening: %w", err)
	}
	start := len(dst)
	dst = append(append(dst, backupMagic...), backupVersion)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, body...)
	return binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start:])), nil
}

var errNoBackup = errors.New("this is no whole backup")

func readBackupHead(r io.Reader) (h backupHead, err error) {
	fixed := make([]byte, len(backupMagic)+1+4)
	if _, err := io.ReadFull(r, fixed); err != nil {
		return h, fmt.Errorf("%w: %w", errNoBackup, err)
	}
	if string(fixed[:len(backupMagic)]) != backupMagic {
		return h, fmt.Errorf("%w: it does not begin with %q", errNoBackup, backupMagic)
	}
	if v := fixed[len(backupMagic)]; v != backupVersion {
		return h, fmt.Errorf("%w: version %d, this program reads %d", errNoBackup, v, backupVersion)
	}
	n := binary.BigEndian.Uint32(fixed[len(backupMagic)+1:])
	if n > maxBackupHead {
		return h, fmt.Errorf("%w: an opening of %d bytes", errNoBackup, n)
	}
	var rest bytes.Buffer
	if _, err := io.CopyN(&rest, r, int64(n)+4); err != nil {
		return h, fmt.Errorf("%w: %w", errNoBackup, err)
	}
	body, sum := rest.Bytes()[:n], binary.BigEndian.Uint32(rest.Bytes()[n:])
	if crc32.Update(crc32.ChecksumIEEE(fixed), crc32.IEEETable, body) != sum {
		return h, fmt.Errorf("%w: its checksum does not match", errNoBackup)
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return h, fmt.Errorf("%w: %w", errNoBackup, err)
	}
	return h, nil
}

func newBackup(a *app) *cobra.Command {
	var recipients []string
	var passFile string
	var withKey bool
	cmd := &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Write an encrypted backup of everything this replica holds",
		Long: `Write everything that this replica holds to one file, encrypted with age: to
recipients, or with a passphrase that is asked for. tally restore puts it back.

Without --with-key the file holds no key of this machine, and what is restored from
it is a new device that another machine must invite. When this is the only machine of the
mesh nobody could: use --with-key then, and keep the file as safe as the machine.`,
		Example: "  tally backup desk.age\n  tally backup desk.age --recipient age1... --with-key",
		Args:    positional("FILE"),
		RunE: func(cmd *cobra.Command, words []string) error {
			h, err := a.home()
			if err != nil {
				return err
			}
			health, err := ask(cmd.Context(), a, ops[server.Health]("health", nil))
			if err != nil {
				return err
			}
			if len(health.Peers) == 0 && !withKey {
				a.say("this is the only machine of its mesh: if it is lost, nobody can let a restored one in; --with-key makes a backup that needs nobody")
			}
			head := backupHead{Label: health.Label, Mesh: health.Mesh, Created: nowText()}
			if withKey {
				if head.DeviceKey, err = os.ReadFile(filepath.Join(h.State, "device.key")); err == nil {
					head.MeshFile, err = os.ReadFile(filepath.Join(h.Data, "mesh"))
				}
				if err != nil {
					return fmt.Errorf("read the keys: %w", err)
				}
			}
			to, err := a.recipients(recipients, passFile)
			if err != nil {
				return err
			}
			n, err := a.backup(cmd.Context(), words[0], head, to)
			if err != nil {
				return err
			}
			return a.wrotePack(words[0], n)
		},
	}
	cmd.Flags().StringArrayVar(&recipients, "recipient", nil, "age recipient, age1...; may be repeated")
	cmd.Flags().StringVar(&passFile, "passphrase-file", "", "file with the passphrase in its first line; - is stdin")
	cmd.Flags().BoolVar(&withKey, "with-key", false, "put the device key in: who has the file and opens it is this machine")
	return cmd
}

func (a *app) backup(ctx context.Context, path string, head backupHead, to []age.Recipient) (n oplog.PackCounts, err error) {
	open, err := head.append(nil)
	if err != nil {
		return n, err
	}
	err = a.withOwner(ctx, func(c *server.Client) error {
		return a.writeNew(path, func(w io.Writer) error {
			sealed, err := age.Encrypt(w, to...)
			if err != nil {
				return fmt.Errorf("encrypt: %w", err)
			}
			if _, err := sealed.Write(open); err != nil {
				return fmt.Errorf("encrypt: %w", err)
			}
			bar := a.bytesBar("backing up", -1)
			defer bar.Close()
			if n, err = c.ExportPack(ctx, true, io.MultiWriter(sealed, bar)); err != nil {
				return err
			}
			if err := sealed.Close(); err != nil {
				return fmt.Errorf("encrypt: %w", err)
			}
			return nil
		})
	})
	return n, err
}

func (a *app) recipients(list []string, passFile string) (to []age.Recipient, err error) {
	if len(list) > 0 {
		if passFile != "" {
			return nil, usage("recipient", "use one of them", "a backup is for recipients or has a passphrase, not both")
		}
		for _, s := range list {
			r, err := age.ParseX25519Recipient(s)
			if err != nil {
				return nil, usage("recipient", "make one with age-keygen; it begins with age1", "%q is no age recipient: %v", oneLine(s, 80), err)
			}
			to = append(to, r)
		}
		return to, nil
	}
	pass, err := a.passphrase(passFile, true)
	if err != nil {
		return nil, err
	}
	r, err := age.NewScryptRecipient(pass)
	if err != nil {
		return nil, usage("passphrase-file", "use a longer one", "%v", err)
	}
	return []age.Recipient{r}, nil
}

// passphrase reads one from a file, or asks for it on the terminal, twice when
// it is new.
func (a *app) passphrase(file string, fresh bool) (string, error) {
	if file != "" {
		text, err := a.readText("passphrase-file", file, 64<<10)
		if err != nil {
			return "", err
		}
		line, _, _ := strings.Cut(text, "\n")
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			return "", usage("passphrase-file", "put it in the first line", "the passphrase is empty")
		}
		return line, nil
	}
	in, ok := a.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return "", usage("passphrase-file", "or name a key: --recipient of a backup, --identity of a restore", "a passphrase is asked for on a terminal, and there is none")
	}
	ask := func(what string) (string, error) {
		fmt.Fprint(a.Stderr, what)
		b, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(a.Stderr)
		return string(b), err
	}
	pass, err := ask("passphrase: ")
	if err != nil || pass == "" {
		return "", usage("passphrase-file", "type one", "no passphrase was given")
	}
	if fresh {
		if again, err := ask("once more: "); err != nil || again != pass {
			return "", usage("passphrase-file", "try again", "the two differ")
		}
	}
	return pass, nil
}
