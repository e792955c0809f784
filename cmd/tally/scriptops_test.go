package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/dgraph-io/badger/v4"
	"github.com/rogpeppe/go-internal/testscript"

	"tallystick/server"
)

// ageKeyCmd is `agekey FILE NAME`: a new age identity goes to the file, its
// recipient to the variable.
func ageKeyCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: agekey FILE NAME")
	}
	id, err := age.GenerateX25519Identity()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(id.String()+"\n"), 0o600))
	ts.Setenv(args[1], id.Recipient().String())
}

// entryHashCmd is `entryhash FILE NAME`: the variable becomes the hash of the
// first entry that `tally log show --json` printed.
func entryHashCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: entryhash FILE NAME")
	}
	var page server.LogEntries
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &page))
	if len(page.Entries) == 0 {
		ts.Fatalf("no entry in %s", args[0])
	}
	ts.Setenv(args[1], page.Entries[0].Hash)
}

// erasedByCmd is `erasedby LINE`: it returns when `tally erase --status` has
// the line. The test's own deadline is the only limit.
func erasedByCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: erasedby LINE")
	}
	for ; ; time.Sleep(50 * time.Millisecond) {
		out, err := scriptCommand(ts, "tally", "erase", "--status").Output()
		ts.Check(err)
		if strings.Contains(string(out), args[0]) {
			return
		}
	}
}

// agreeCmd is `agree HOME HOME`: it returns when the replicas of two homes,
// which run, show the same of every view. The test's own deadline is the only
// limit.
func agreeCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: agree HOME HOME")
	}
	views := func(home string) string {
		out, err := scriptCommand(ts, "tally", "--home", home, "status", "--json").Output()
		ts.Check(err)
		var st meshStatus
		ts.Check(json.Unmarshal(out, &st))
		return fmt.Sprint(st.Views)
	}
	for views(args[0]) != views(args[1]) {
		time.Sleep(50 * time.Millisecond)
	}
}

// breakViewCmd is `breakview HOME VIEW`: one row of a view of a stopped replica
// is lost, as by a fault of the disk that no checksum has seen.
func breakViewCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: breakview HOME VIEW")
	}
	dir := ts.MkAbs(args[0])
	file, err := os.ReadFile(filepath.Join(dir, "state", "store.key"))
	ts.Check(err)
	db, err := badger.Open(badger.DefaultOptions(filepath.Join(dir, "data", "store")).WithEncryptionKey(file[13 : len(file)-4]).
		WithIndexCacheSize(16 << 20).WithMemTableSize(8 << 20).WithLogger(nil))
	ts.Check(err)
	err = db.Update(func(tx *badger.Txn) error {
		prefix := []byte("v" + args[1] + "\x00")
		it := tx.NewIterator(badger.IteratorOptions{Prefix: prefix})
		defer it.Close()
		if it.Rewind(); !it.Valid() {
			ts.Fatalf("view %s has no row", args[1])
		}
		return tx.Delete(it.Item().KeyCopy(nil))
	})
	ts.Check(err)
	ts.Check(db.Close())
}

// breakEntryCmd is `breakentry HOME TEXT`: a bit flips in the entry of a stopped
// replica that holds TEXT, where no checksum of the engine sees it.
func breakEntryCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: breakentry HOME TEXT")
	}
	dir := ts.MkAbs(args[0])
	file, err := os.ReadFile(filepath.Join(dir, "state", "store.key"))
	ts.Check(err)
	db, err := badger.Open(badger.DefaultOptions(filepath.Join(dir, "data", "store")).WithEncryptionKey(file[13 : len(file)-4]).
		WithIndexCacheSize(16 << 20).WithMemTableSize(8 << 20).WithLogger(nil))
	ts.Check(err)
	err = db.Update(func(tx *badger.Txn) error {
		it := tx.NewIterator(badger.IteratorOptions{Prefix: []byte("e")})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			v, err := it.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			if i := bytes.Index(v, []byte(args[1])); i >= 0 {
				v[i] ^= 1
				return tx.Set(it.Item().KeyCopy(nil), v)
			}
		}
		return fmt.Errorf("no entry holds %q", args[1])
	})
	ts.Check(err)
	ts.Check(db.Close())
}
