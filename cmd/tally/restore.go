package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"tallystick/oplog"
	"tallystick/replica"
	"tallystick/server"
)

func nowText() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// restoreInfo is what a restore has led to.
type restoreInfo struct {
	Label   string         `json:"label"`
	Mesh    string         `json:"mesh"`
	Origin  string         `json:"origin"` // the new incarnation
	SameKey bool           `json:"same_device"`
	Created string         `json:"created"` // when the backup was made, as it says
	Counts  oplog.Imported `json:"counts"`
}

func newRestore(a *app) *cobra.Command {
	var s settings
	var passFile, identity, token string
	var withKey bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup back into a fresh home",
		Long: `Put a backup back into a home without a replica. A restored replica writes in a new
incarnation: it never continues where the backup's had stopped, for others may hold
what that one wrote later; it fetches that from them.

With --join TOKEN it becomes a new device of the mesh, which tally invite on another
machine lets in. With --with-key, of a backup made so, it is the same device again: the
machine of the backup must not run any more.`,
		Example: "  tally restore desk.age --join tally1.kwHEEA...\n  tally restore desk.age --with-key",
		Args:    positional("FILE"),
		RunE: func(cmd *cobra.Command, words []string) error {
			h, err := a.home()
			if err != nil {
				return err
			}
			if (token == "") == !withKey {
				return usage("join", "tally invite on another machine prints a token; a backup made with --with-key needs none",
					"say what the restored replica is: a new device with --join TOKEN, or the same one with --with-key")
			}
			if err := freshHome(h); err != nil {
				return err
			}
			open, err := a.opener(passFile, identity)
			if err != nil {
				return err
			}
			info, err := a.restore(cmd.Context(), h, s, a.abs(words[0]), open, token)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(info)
			}
			fmt.Fprintf(a.Stdout, "restored %s into %s as %s, in the new incarnation %s\n", pluralOf(info.Counts.Added, "entry", "entries"), info.Mesh, info.Label, info.Origin)
			if info.SameKey {
				a.say("the machine that this was must not run again; start this one with tally up")
			} else {
				a.say("this is a new device of the mesh; start it with tally up")
			}
			return nil
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&passFile, "passphrase-file", "", "file with the passphrase in its first line; - is stdin")
	cmd.Flags().StringVar(&identity, "identity", "", "file with an age identity, AGE-SECRET-KEY-...")
	cmd.Flags().StringVar(&token, "join", "", "join the mesh as a new device with this token")
	cmd.Flags().BoolVar(&withKey, "with-key", false, "be the device of the backup, with its key")
	return cmd
}

// freshHome refuses a home that has a replica, or had one.
func freshHome(h home) error {
	key := filepath.Join(h.State, "device.key")
	_, err := os.Lstat(key)
	if h.exists() || err == nil {
		return &server.Error{Code: server.CodeConflict, Field: h.Data, Message: "there is a replica in " + h.Data + " already; a restore never goes over one",
			Hint: "restore into another folder with TALLY_HOME=DIR, or bring entries in with tally log import"}
	}
	return nil
}

// opener gives what opens a backup.
func (a *app) opener(passFile, identity string) ([]age.Identity, error) {
	if identity != "" {
		text, err := a.readText("identity", identity, 64<<10)
		if err != nil {
			return nil, err
		}
		ids, err := age.ParseIdentities(strings.NewReader(text))
		if err != nil {
			return nil, usage("identity", "it is what age-keygen wrote", "%s holds no age identity: %v", identity, err)
		}
		return ids, nil
	}
	pass, err := a.passphrase(passFile, false)
	if err != nil {
		return nil, err
	}
	id, err := age.NewScryptIdentity(pass)
	if err != nil {
		return nil, usage("passphrase-file", "", "%v", err)
	}
	return []age.Identity{id}, nil
}

// openBackup reads up to the pack. What is read of the file moves a bar.
func (a *app) openBackup(path, what string, ids []age.Identity) (f io.Closer, head backupHead, p *oplog.PackReader, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, head, nil, fileError("FILE", path, err)
	}
	bar := a.bytesBar(what, fileSize(file))
	f = closers{bar, file}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	plain, err := age.Decrypt(io.TeeReader(file, bar), ids...)
	var wrong *age.NoIdentityMatchError
	if errors.As(err, &wrong) {
		return f, head, nil, usage("FILE", "use the passphrase or the identity it was made for", "%s does not open with that", path)
	}
	if err != nil {
		return f, head, nil, notBackup(path, err)
	}
	if head, err = readBackupHead(plain); err == nil {
		p, err = oplog.NewPackReader(plain)
	}
	if err != nil {
		return f, head, nil, notBackup(path, err)
	}
	return f, head, p, nil
}

// closers closes several things in order.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func notBackup(path string, err error) error {
	return usage("FILE", "take another copy of the file; nothing was restored", "%s is no whole backup: %v", path, err)
}

func (a *app) restore(ctx context.Context, h home, s settings, path string, ids []age.Identity, token string) (info restoreInfo, err error) {
	// The file is read through once before anything is made of it.
	f, head, p, err := a.openBackup(path, "checking", ids)
	if err != nil {
		return info, err
	}
	for err == nil {
		_, _, err = p.Next()
	}
	f.Close() // its bar makes room for the next one
	if !errors.Is(err, io.EOF) {
		return info, notBackup(path, err)
	}
	if token == "" && len(head.DeviceKey) == 0 {
		return info, usage("with-key", "join as a new device with --join TOKEN", "this backup was made without --with-key: it holds no key")
	}
	info = restoreInfo{Created: head.Created, SameKey: token == ""}
	if token != "" {
		if _, err := a.join(ctx, h, s, token, false, false); err != nil {
			return info, err
		}
	} else if err := putKeys(h, &head); err != nil {
		return info, err
	}
	again, _, p, err := a.openBackup(path, "restoring", ids)
	if err != nil {
		return info, err
	}
	defer again.Close()
	err = a.fill(ctx, h, s, &head, p, &info)
	return info, err
}

// putKeys makes the home the backup's device.
func putKeys(h home, head *backupHead) error {
	if err := h.make(); err != nil {
		return err
	}
	for path, b := range map[string][]byte{filepath.Join(h.State, "device.key"): head.DeviceKey, filepath.Join(h.Data, "mesh"): head.MeshFile} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		_, err = f.Write(b)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("restore %s: %w", path, err)
		}
	}
	return nil
}

// fill opens the new replica away from the network and takes the pack in.
func (a *app) fill(ctx context.Context, h home, s settings, head *backupHead, p *oplog.PackReader, info *restoreInfo) (err error) {
	lock, err := lockOwner(h)
	if err != nil {
		return err
	}
	defer lock.release()
	log := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	cfg := replicaConfig(h, s, log)
	cfg.Listen, cfg.Static, cfg.Peers = "127.0.0.1:0", true, nil
	rep, err := replica.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer closing(&err, "close the replica", rep.Close)
	info.Label, info.Mesh, info.Origin = rep.Label(), rep.Mesh().String(), replicaID(rep.Self().ID)
	if head.Mesh != info.Mesh {
		return &server.Error{Code: server.CodeConflict, Field: "join", Message: "the backup is of " + head.Mesh + ", and this replica is in " + info.Mesh,
			Hint: "take a token of the backup's mesh"}
	}
	info.Counts, err = rep.Log().Import(ctx, p, nil)
	return err
}
