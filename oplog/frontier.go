package oplog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
)

// Tip is the end of one branch of an origin's log.
type Tip struct {
	Seq  uint64
	Hash Hash
}

// Frontier says what a replica durably holds and has folded or set aside:
// for each origin its tips, nearly always one (L2, L7c). The zero value holds
// nothing and is ready for reading.
type Frontier map[OriginID][]Tip

// MaxFrontierOrigins bounds what ParseFrontier accepts.
const MaxFrontierOrigins = 1 << 16

// MaxTips is how many branches of one origin a frontier carries.
const MaxTips = 64

// Seq is the highest seq held of an origin, over all branches.
func (f Frontier) Seq(o OriginID) uint64 {
	var highest uint64
	for _, t := range f[o] {
		highest = max(highest, t.Seq)
	}
	return highest
}

// Has reports whether t is one of the origin's tips.
func (f Frontier) Has(o OriginID, t Tip) bool { return slices.Contains(f[o], t) }

// Clone copies the frontier.
func (f Frontier) Clone() Frontier {
	c := make(Frontier, len(f))
	for o, tips := range f {
		c[o] = slices.Clone(tips)
	}
	return c
}

// Total is the number of entries that the frontier covers, forks counted by
// their longest branch.
func (f Frontier) Total() uint64 {
	var n uint64
	for o := range f {
		n += f.Seq(o)
	}
	return n
}

// Origins lists the origins in byte order.
func (f Frontier) Origins() []OriginID {
	ids := make([]OriginID, 0, len(f))
	for o := range f {
		ids = append(ids, o)
	}
	slices.SortFunc(ids, OriginID.Compare)
	return ids
}

// Digest is SHA-256 over the encoded frontier: equal digests mean equal tips.
func (f Frontier) Digest() Hash { return sha256.Sum256(f.Append(nil)) }

// Append encodes the frontier: an array of [origin, [[seq, hash]...]] in
// byte order of origin, the tips by seq then hash. Equal sets of tips give
// equal bytes: an origin without tips is left out, a tip given twice is
// written once. ParseFrontier refuses more than MaxFrontierOrigins origins or
// MaxTips tips of one; who builds frontiers keeps below that.
func (f Frontier) Append(dst []byte) []byte {
	ids := slices.DeleteFunc(f.Origins(), func(o OriginID) bool { return len(f[o]) == 0 })
	dst = appendArrayLen(dst, len(ids))
	for _, o := range ids {
		tips := f[o]
		if len(tips) > 1 {
			tips = slices.Clone(tips)
			slices.SortFunc(tips, compareTips)
			tips = slices.Compact(tips)
		}
		dst = appendArrayLen(dst, 2)
		dst = appendBin(dst, o[:])
		dst = appendArrayLen(dst, len(tips))
		for _, t := range tips {
			dst = appendArrayLen(dst, 2)
			dst = appendUint(dst, t.Seq)
			dst = appendBin(dst, t.Hash[:])
		}
	}
	return dst
}

func compareTips(a, b Tip) int {
	if c := cmp.Compare(a.Seq, b.Seq); c != 0 {
		return c
	}
	return bytes.Compare(a.Hash[:], b.Hash[:])
}

// ParseFrontier reads what Append writes and returns what is left of b.
func ParseFrontier(b []byte) (f Frontier, rest []byte, err error) {
	r := reader{b: b}
	n := r.arrayLen()
	if r.err == nil && n > MaxFrontierOrigins {
		r.failSize("frontier", n, MaxFrontierOrigins)
	}
	f = Frontier{}
	var last OriginID
	for i := 0; i < n && r.err == nil; i++ {
		r.array(2)
		var o OriginID
		r.fixed(o[:])
		if r.err == nil && i > 0 && o.Compare(last) <= 0 {
			r.fail("origins out of order")
		}
		last = o
		m := r.arrayLen()
		switch {
		case r.err != nil:
		case m == 0:
			r.fail("origin without tips")
		case m > MaxTips:
			r.failSize("tips", m, MaxTips)
		}
		for j := 0; j < m && r.err == nil; j++ {
			r.array(2)
			t := Tip{Seq: r.uint()}
			r.fixed(t.Hash[:])
			if r.err == nil && t.Seq == 0 {
				r.fail("tip at seq 0")
			}
			if tips := f[o]; r.err == nil && len(tips) > 0 && compareTips(tips[len(tips)-1], t) >= 0 {
				r.fail("tips out of order")
			}
			f[o] = append(f[o], t)
		}
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	return f, b[r.pos:], nil
}
