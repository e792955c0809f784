package engines

import (
	"database/sql"
	"path/filepath"
	"sync/atomic"

	_ "modernc.org/sqlite" // the driver
)

type sqlite struct {
	db     *sql.DB
	insert *sql.Stmt
	keys   bool
	n      atomic.Uint64
}

// SQLite opens a table in SQLite, translated to Go: write-ahead log,
// synchronous=FULL, one transaction an Append, one connection, which writers
// wait for. It writes the payload alone, or with keys the keys and values that
// the log writes.
func SQLite(keys bool) Open {
	return func(dir string) (Engine, error) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "log.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1)
		table, insert := "CREATE TABLE log (seq INTEGER PRIMARY KEY AUTOINCREMENT, payload BLOB NOT NULL)", "INSERT INTO log (payload) VALUES (?)"
		if keys {
			table, insert = "CREATE TABLE log (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID", "INSERT OR REPLACE INTO log (k, v) VALUES (?, ?)"
		}
		s := &sqlite{db: db, keys: keys}
		if _, err = db.Exec(table); err == nil {
			s.insert, err = db.Prepare(insert)
		}
		return s, err
	}
}

func (s *sqlite) Append(payloads ...[]byte) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	stmt := tx.Stmt(s.insert)
	if s.keys {
		for _, p := range pairs(&s.n, payloads) {
			if _, err := stmt.Exec(p.key, p.value); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
	for _, p := range payloads {
		if _, err := stmt.Exec(p); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (s *sqlite) Close() error { return s.db.Close() }
