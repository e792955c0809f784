// Package merge reads several prefixes of a view as one sequence in the order
// of what follows the prefix.
package merge

import (
	"bytes"

	"tallystick/oplog"
)

const chunk = 64

type stream struct {
	prefix  []byte
	keys    [][]byte // after the prefix
	values  [][]byte
	last    []byte // last key read, to go on from
	pos     int
	drained bool
}

// Scan calls fn for the rows below each prefix, ordered by the rest of the
// key, against that order when reverse. It begins at the first rest that is
// not before from (not after it when reverse); nil begins at the end it comes
// from. fn returns false to stop. A rest that stands below several prefixes
// is given once.
func Scan(r oplog.Reader, prefixes [][]byte, from []byte, reverse bool, fn func(rest, value []byte) (bool, error)) error {
	if len(prefixes) == 1 {
		p := prefixes[0]
		return r.Scan(p, start(p, from), reverse, func(key, value []byte) (bool, error) { return fn(key[len(p):], value) })
	}
	streams := make([]*stream, len(prefixes))
	for i, p := range prefixes {
		streams[i] = &stream{prefix: p, last: from}
		if err := streams[i].fill(r, reverse, true); err != nil {
			return err
		}
	}
	var given []byte
	for {
		var best *stream
		for _, s := range streams {
			if s.pos < len(s.keys) && (best == nil || before(s.keys[s.pos], best.keys[best.pos], reverse)) {
				best = s
			}
		}
		if best == nil {
			return nil
		}
		key, value := best.keys[best.pos], best.values[best.pos]
		if given == nil || !bytes.Equal(given, key) {
			if more, err := fn(key, value); err != nil || !more {
				return err
			}
			given = key
		}
		if best.pos++; best.pos == len(best.keys) {
			if err := best.fill(r, reverse, false); err != nil {
				return err
			}
		}
	}
}

func before(a, b []byte, reverse bool) bool {
	c := bytes.Compare(a, b)
	return c < 0 && !reverse || c > 0 && reverse
}

func start(prefix, rest []byte) []byte {
	if rest == nil {
		return nil
	}
	return append(append(make([]byte, 0, len(prefix)+len(rest)), prefix...), rest...)
}

// fill reads the next rows of the stream. The row it ended with is read again
// and dropped, unless this is the first time.
func (s *stream) fill(r oplog.Reader, reverse, first bool) error {
	s.keys, s.values, s.pos = s.keys[:0:0], s.values[:0:0], 0
	if s.drained {
		return nil
	}
	full := false
	err := r.Scan(s.prefix, start(s.prefix, s.last), reverse, func(key, value []byte) (bool, error) {
		rest := key[len(s.prefix):]
		if !first && bytes.Equal(rest, s.last) {
			return true, nil
		}
		if len(s.keys) == chunk {
			full = true
			return false, nil
		}
		s.keys = append(s.keys, bytes.Clone(rest))
		s.values = append(s.values, bytes.Clone(value))
		return true, nil
	})
	if err != nil {
		return err
	}
	s.drained = !full
	if n := len(s.keys); n > 0 {
		s.last = s.keys[n-1]
	}
	return nil
}
