package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tallystick/oplog"
)

// A join that brings the entries of a solo mesh along puts its store aside, in
// the folder "bring" of the data directory, and writes a journal there first:
//
//	journal   which mesh the home is on its way to, and which it comes from
//	store     the old store
//	mesh      the old mesh file
//
// The new mesh file is the point of no return. Found without it at the next
// open, the folder is put back and the home is what it was; found with it, the
// entries wait to be carried over. When they have been, the folder goes, or,
// when something in it is not in the new store, is kept as former.<mesh>.

const (
	bringFolder  = "bring"
	bringGone    = "bring.gone" // being deleted
	formerPrefix = "former."
	journalMagic = "tallybrg"
	journalFile  = "journal"
)

// bringJournal is the body of the journal.
type bringJournal struct {
	To    []byte // mesh joined
	From  []byte // mesh left
	Label string // in the mesh left
}

// Former is a mesh of one that this home has left and whose entries wait to be
// carried into its present mesh.
type Former struct {
	Mesh  MeshID
	Label string // of this machine there
	Dir   string // where its store is
}

// OwnKinds are the kinds of entry that mean something in the log they are in
// only: births, membership, names, ends, seals, erases and their receipts.
func OwnKinds() []string {
	return []string{kindBirth, KindGenesis, KindAdmit, KindLabel, KindRename, KindSeal, KindRevoke, KindLeave, oplog.KindErase, KindErased}
}

func (c *Config) bringDir() string { return filepath.Join(c.Dir, bringFolder) }

func (c *Config) reach(point string) error {
	if c.at == nil {
		return nil
	}
	return c.at(point)
}

func loadJournal(dir string) (*bringJournal, error) {
	b, err := readSmall(filepath.Join(dir, journalFile))
	if err != nil {
		return nil, err
	}
	body, err := decodeFile(journalMagic, b)
	if err != nil {
		return nil, err
	}
	return parseJournal(body)
}

func parseJournal(body []byte) (*bringJournal, error) {
	j := new(bringJournal)
	if err := unmarshalArrays(body, j); err != nil || len(j.To) != len(MeshID{}) || len(j.From) != len(MeshID{}) || CheckLabel(j.Label) != nil {
		return nil, fmt.Errorf("%w: journal of a join", errFileDamaged)
	}
	return j, nil
}

// setAside puts the store of the mesh that is left aside.
func setAside(cfg *Config, to MeshID, from *meshState) error {
	dir := cfg.bringDir()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("replica: put the store aside: %w", err)
	}
	body, err := marshalArrays(&bringJournal{To: to[:], From: from.Mesh, Label: from.Label})
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, journalFile), encodeFile(journalMagic, body), false); err != nil {
		return fmt.Errorf("replica: write the journal of the join: %w", err)
	}
	if err := syncDir(cfg.Dir); err != nil {
		return err
	}
	if err := cfg.reach("journal"); err != nil {
		return err
	}
	for _, m := range []struct{ from, point string }{{cfg.storeDir(), "store"}, {cfg.meshFile(), "mesh"}} {
		if err := os.Rename(m.from, filepath.Join(dir, filepath.Base(m.from))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replica: put the store aside: %w", err)
		}
		if err := errors.Join(syncDir(dir), syncDir(cfg.Dir)); err != nil {
			return err
		}
		if err := cfg.reach(m.point); err != nil {
			return err
		}
	}
	return nil
}

// PendingFormer finds a former mesh whose entries wait to be carried over, in a
// home that may be in use.
func PendingFormer(cfg Config) (Former, bool, error) {
	c := cfg.withDefaults()
	return pendingFormer(&c)
}

func pendingFormer(cfg *Config) (f Former, ok bool, err error) {
	j, err := loadJournal(cfg.bringDir())
	if errors.Is(err, fs.ErrNotExist) {
		return f, false, nil
	}
	if err != nil {
		path := filepath.Join(cfg.bringDir(), journalFile)
		return f, false, &Error{Code: CodeStoreDamaged, Field: path, Message: "cannot read " + path, Err: err,
			Hint: "restore the file from a backup; or move the folder " + cfg.bringDir() + " away, which holds the store of the former mesh"}
	}
	state, err := loadMesh(cfg)
	if err != nil && !meshMissing(err) {
		return f, false, err
	}
	if err != nil || state.id() != MeshID(j.To) {
		return f, false, nil // the join did not come to its end
	}
	return Former{Mesh: MeshID(j.From), Label: j.Label, Dir: cfg.bringDir()}, true, nil
}

// settleBring ends what a crash has left: a join that did not come to its end
// is taken back, a folder that is not needed any more goes.
func settleBring(cfg *Config, log *slog.Logger) error {
	if err := os.RemoveAll(filepath.Join(cfg.Dir, bringGone)); err != nil {
		return fmt.Errorf("replica: remove the former store: %w", err)
	}
	dir := cfg.bringDir()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, pending, err := pendingFormer(cfg); err != nil || pending {
		return err
	}
	if dirHasFiles(filepath.Join(dir, "store")) {
		log.Warn("a join did not come to its end; this home stays in its mesh", slog.String("data", cfg.Dir))
	}
	// The mesh file last: while it is missing, the store is not opened.
	for _, path := range []string{cfg.storeDir(), cfg.meshFile()} {
		aside := filepath.Join(dir, filepath.Base(path))
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Rename(aside, path); err != nil {
			return fmt.Errorf("replica: put the store back: %w", err)
		}
		if err := errors.Join(syncDir(dir), syncDir(cfg.Dir)); err != nil {
			return err
		}
	}
	return dropFolder(cfg)
}

// dropFolder takes the folder away so that a crash on the way leaves nothing
// that looks like a store.
func dropFolder(cfg *Config) error {
	gone := filepath.Join(cfg.Dir, bringGone)
	if err := os.Rename(cfg.bringDir(), gone); err != nil {
		return fmt.Errorf("replica: remove the former store: %w", err)
	}
	if err := syncDir(cfg.Dir); err != nil {
		return err
	}
	if err := cfg.reach("gone"); err != nil {
		return err
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("replica: remove the former store: %w", err)
	}
	return nil
}

// keepFolder keeps the folder under a name of its own.
func keepFolder(cfg *Config, mesh MeshID) (string, error) {
	base := filepath.Join(cfg.Dir, formerPrefix+strings.TrimPrefix(mesh.String(), meshTextPrefix)[:8])
	path := base
	for n := 2; ; n++ {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		path = fmt.Sprintf("%s.%d", base, n)
	}
	if err := os.Rename(cfg.bringDir(), path); err != nil {
		return "", fmt.Errorf("replica: keep the former store: %w", err)
	}
	return path, syncDir(cfg.Dir)
}

// KeptFormer lists the folders of former stores that hold something which was
// not carried over.
func KeptFormer(cfg Config) ([]string, error) {
	c := cfg.withDefaults()
	return filepath.Glob(filepath.Join(c.Dir, formerPrefix+"*"))
}

// Former finds the mesh whose entries wait to be carried into this one.
func (r *Replica) Former() (Former, bool, error) { return pendingFormer(&r.cfg) }

// BringFormer opens the store of the former mesh and lets carry write its
// entries into this replica's log. When carry reports that nothing is missing,
// the old store goes; else it is kept, and where is the answer. After an error
// it waits for the next call. It must not run twice at a time.
func (r *Replica) BringFormer(ctx context.Context, carry func(ctx context.Context, f Former, old *oplog.Log) (complete bool, err error)) (kept string, err error) {
	f, ok, err := r.Former()
	if err != nil || !ok {
		return "", err
	}
	if !dirHasFiles(filepath.Join(f.Dir, "store")) { // opening it would make a new one
		return "", errorf(CodeStoreDamaged, f.Dir, "put the folder back from where it went; to give its entries up, delete "+f.Dir,
			"the store of the former mesh is missing in %s", f.Dir)
	}
	members := NewMembership(f.Mesh)
	old, err := oplog.Open(ctx, oplog.Config{Dir: filepath.Join(f.Dir, "store"), EncryptionKey: r.keys.store, Signer: r.keys.device,
		Wall: r.cfg.Wall, Bound: r.cfg.Bound, MinFree: r.cfg.MinFree, Logger: r.logger,
		Projections: slices.Concat([]oplog.Projection{members}, r.cfg.Projections, []oplog.Projection{erasures{}}), Gate: members})
	if err != nil {
		return "", storeError(f.Dir, err)
	}
	complete, err := carry(ctx, f, old)
	if cerr := old.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", storeError(r.cfg.Dir, err)
	}
	if err := r.cfg.reach("carried"); err != nil {
		return "", err
	}
	if !complete {
		return keepFolder(&r.cfg, f.Mesh)
	}
	return "", dropFolder(&r.cfg)
}
