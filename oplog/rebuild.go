package oplog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// loadViews reads the state of every view and rebuilds those whose projection
// is new or has another version. Entries in quarantine get another chance
// whenever a projection changed, be it only by a kind more.
func (l *Log) loadViews(ctx context.Context) error {
	l.infos = make([]viewState, len(l.cfg.Projections))
	var stale []int
	var old [][]byte
	snap := l.db.snapshot()
	for i, p := range l.cfg.Projections {
		v, err := snap.get(infoKey(p.Name()))
		if errors.Is(err, ErrNotFound) {
			stale = append(stale, i)
			continue
		}
		if err != nil {
			snap.release()
			return err
		}
		switch state, version, err := parseViewState(v); {
		case err != nil || version != p.Version():
			stale = append(stale, i)
		default:
			l.infos[i] = state
			left, err := l.leftovers(snap, i)
			if err != nil {
				snap.release()
				return err
			}
			old = append(old, left...)
		}
	}
	folds := l.foldsSum()
	was, err := snap.get(metaKey("folds"))
	snap.release()
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	for _, prefix := range old {
		if err := l.db.wipe(prefix); err != nil {
			return fmt.Errorf("oplog: drop rows of a rebuild that a stop ended: %w", err)
		}
	}
	if len(stale) == 0 && bytes.Equal(was, folds) {
		return l.loadEndings()
	}
	if l.w.arrival > 0 {
		for _, i := range stale {
			if err := l.db.wipe(viewTable(l.cfg.Projections[i].Name())); err != nil {
				return fmt.Errorf("oplog: drop view %s: %w", l.cfg.Projections[i].Name(), err)
			}
		}
		if len(stale) > 0 {
			if err := l.refold(ctx, stale); err != nil {
				return err
			}
		}
		if err := l.loadEndings(); err != nil {
			return err
		}
		if err := l.retryQuarantine(); err != nil {
			return err
		}
	}
	g := l.newGroup(nil)
	defer g.b.release()
	for _, i := range stale {
		g.infos[i].dirty = true
	}
	if len(stale) > 0 && len(g.endings) > 0 {
		g.needRecut() // a view folded anew may tell other endings
	}
	g.saveViews()
	g.b.set(metaKey("folds"), folds)
	if err := l.db.commit(g.b); err != nil {
		return err
	}
	l.infos = g.infos
	return l.loadEndings()
}

// leftovers are the generations of a view beside the one that is read: of a
// rebuild that the end of the process cut short, before or after it switched
// over. The next rebuild would fold into the one and leave the bytes of what was
// erased in the other.
func (l *Log) leftovers(snap kvSnapshot, i int) (prefixes [][]byte, err error) {
	name, current := l.cfg.Projections[i].Name(), l.infos[i].gen
	table := viewTable(name)
	seen := map[byte]bool{}
	for _, reverse := range []bool{false, true} {
		err := snap.scan(table, nil, reverse, func(key, _ []byte) (bool, error) {
			if gen := key[len(table)]; gen != current && !seen[gen] {
				seen[gen] = true
				prefixes = append(prefixes, viewPrefix(name, gen))
			}
			return false, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return prefixes, nil
}

// foldsSum names what this program can fold: kinds, views and their versions.
func (l *Log) foldsSum() []byte {
	var lines []string
	for k := range l.known {
		lines = append(lines, "kind "+k)
	}
	for _, p := range l.cfg.Projections {
		lines = append(lines, fmt.Sprintf("view %s %d", p.Name(), p.Version()))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return sum[:8]
}

// refold streams all visible entries through some projections.
func (l *Log) refold(ctx context.Context, stale []int) error {
	sees := func(i int, kind string) bool {
		for _, k := range l.cfg.Projections[i].Kinds() {
			if k == "*" || k == kind {
				return true
			}
		}
		return false
	}
	src := l.db.snapshot()
	defer src.release()
	g := l.newGroup(nil)
	flush := func() error {
		defer g.b.release()
		if g.b.items.Len() == 0 {
			return nil
		}
		if err := l.Room(); err != nil {
			return err
		}
		if err := l.db.commit(g.b); err != nil {
			return err
		}
		l.infos, l.owed, l.mended = g.infos, g.owed, g.mended
		return nil
	}
	var passed []place
	err := src.scan([]byte{tabArr}, nil, false, func(_, value []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		p, err := placeOf(value)
		if err != nil {
			return false, err
		}
		e, good, err := g.goodIn(src.get, p)
		if err != nil {
			return false, err
		}
		if !good {
			passed = append(passed, p)
			return true, nil
		}
		if !e.Present() || e.beyond {
			return true, nil
		}
		for _, i := range stale {
			if !sees(i, e.Kind) {
				continue
			}
			var q *QuarantineError
			mark, infos := g.b.mark(), append([]viewState(nil), g.infos...)
			if err := l.cfg.Projections[i].Apply(g.tx(i), &e); errors.As(err, &q) {
				g.b.rollback(mark)
				g.infos = infos
				l.cfg.Logger.Warn("a folded entry no longer folds", "view", l.cfg.Projections[i].Name(), "entry", e.Hash.String(), "reason", q.Reason)
			} else if err != nil {
				return false, err
			}
		}
		if g.b.full() {
			if err := flush(); err != nil {
				return false, err
			}
			g = l.newGroup(nil)
		}
		return true, nil
	})
	if err != nil {
		g.b.release()
		return fmt.Errorf("oplog: rebuild views: %w", err)
	}
	if err := g.passOver(passed); err != nil {
		g.b.release()
		return fmt.Errorf("oplog: rebuild views: %w", err)
	}
	return flush()
}

// retryQuarantine folds entries that a newer program understands.
func (l *Log) retryQuarantine() error {
	var list []place
	snap := l.db.snapshot()
	err := snap.scan([]byte{tabAside}, nil, false, func(key, value []byte) (bool, error) {
		if value[0] == stateQuarantined {
			list = append(list, place{binary.BigEndian.Uint32(key[1:]), binary.BigEndian.Uint64(key[5:])})
		}
		return true, nil
	})
	snap.release()
	for len(list) > 0 && err == nil {
		list, err = l.retry(list)
	}
	if err != nil {
		return fmt.Errorf("oplog: retry quarantined entries: %w", err)
	}
	return nil
}

// retry delivers as many of the entries as fit one transaction and returns
// the rest.
func (l *Log) retry(list []place) ([]place, error) {
	g := l.newGroup(nil)
	defer g.b.release()
	for len(list) > 0 && !g.b.full() {
		p := list[0]
		list = list[1:]
		ln := g.laneAt(p.lane)
		e, _, err := getEntry(g.b.get, p)
		if err != nil {
			return nil, err
		}
		g.b.del(seqKey(tabAside, p.lane, p.seq))
		if err := g.deliver(ln, &e); err != nil {
			return nil, err
		}
	}
	g.saveViews()
	state := binary.BigEndian.AppendUint64(nil, g.arrival)
	g.b.set(metaKey("state"), binary.BigEndian.AppendUint64(state, uint64(l.clock.Last())))
	if err := l.db.commit(g.b); err != nil {
		return nil, err
	}
	l.publish(g)
	return list, nil
}
