package main

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"math"
	"path/filepath"
	"slices"

	"github.com/blevesearch/bleve/v2"
	_ "github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/blevesearch/bleve/v2/search/query"

	"tallystick/oplog"
	"tallystick/query/search"
	"tallystick/query/search/analysis"
)

type maker struct {
	label string
	most  int // documents it is worth trying with
	open  func(ctx context.Context, root string) (engine, error)
}

var makers = []maker{
	{"bleve scorch, memory", 1_000_000, func(_ context.Context, _ string) (engine, error) { return openBleve("") }},
	{"bleve scorch, plain files", 1_000_000, func(_ context.Context, root string) (engine, error) {
		return openBleve(filepath.Join(root, "bleve"))
	}},
	{"rows in the encrypted store", 100_000, openRows},
	{"own, sealed file", 1_000_000, func(ctx context.Context, root string) (engine, error) { return openOwn(ctx, root, nil) }},
	{"own, BM25 only", 1_000_000, func(ctx context.Context, root string) (engine, error) {
		r := search.DefaultRanking()
		r.Session, r.Neighbour, r.Feedback, r.Family, r.Phrase = 0, 0, 0, 0, 0
		return openOwn(ctx, root, &r)
	}},
}

// bleveIndex is the library as its documentation has it: English analyser,
// BM25, text not stored.
type bleveIndex struct {
	path string
	x    bleve.Index
}

func openBleve(path string) (engine, error) {
	text := bleve.NewTextFieldMapping()
	text.Analyzer, text.Store, text.IncludeInAll, text.DocValues = "en", false, false, false
	session := bleve.NewKeywordFieldMapping()
	session.Store, session.IncludeInAll = false, false
	m := bleve.NewIndexMapping()
	m.DefaultMapping = mapping.NewDocumentStaticMapping()
	m.DefaultMapping.AddFieldMappingsAt("text", text)
	m.DefaultMapping.AddFieldMappingsAt("session", session)
	m.ScoringModel = "bm25"
	x, err := bleve.NewUsing(path, m, scorch.Name, scorch.Name, nil)
	return &bleveIndex{path, x}, err
}

func (b *bleveIndex) name() string { return "bleve" }
func (b *bleveIndex) dir() string  { return b.path }
func (b *bleveIndex) close() error { return b.x.Close() }

func (b *bleveIndex) add(_ context.Context, docs []doc) error {
	batch := b.x.NewBatch()
	for _, d := range docs {
		if err := batch.Index(d.id, map[string]any{"text": d.text, "session": d.session}); err != nil {
			return err
		}
	}
	return b.x.Batch(batch)
}

func (b *bleveIndex) search(text string) ([]string, error) {
	q := query.NewMatchQuery(text)
	q.SetField("text")
	res, err := b.x.Search(bleve.NewSearchRequestOptions(q, 10, 0, false))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, h := range res.Hits {
		ids = append(ids, h.ID)
	}
	return ids, nil
}

func (b *bleveIndex) reopen(context.Context) (bool, error) {
	if b.path == "" {
		return false, nil
	}
	if err := b.x.Close(); err != nil {
		return false, err
	}
	x, err := bleve.Open(b.path)
	b.x = x
	return true, err
}

// own is this project's index, fed as a log would feed it.
type own struct {
	root string
	x    *search.Index
	r    *search.Ranking
	cfg  search.Config
}

func openOwn(ctx context.Context, root string, r *search.Ranking) (engine, error) {
	o := &own{root: filepath.Join(root, "own"), r: r}
	o.cfg = search.Config{Dir: o.root, Key: make([]byte, 32)}
	var err error
	o.x, err = search.Open(ctx, o.cfg)
	return o, err
}

func (o *own) name() string { return "own" }
func (o *own) dir() string  { return o.root }
func (o *own) close() error { return o.x.Close() }

func (o *own) add(ctx context.Context, docs []doc) error {
	list := make([]search.Document, len(docs))
	for i, d := range docs {
		list[i] = search.Document{ID: d.id, Kind: "memory", Session: d.session, Text: d.text}
	}
	return o.x.Put(ctx, list...)
}

func (o *own) search(text string) ([]string, error) {
	res, err := o.x.Search(context.Background(), search.Query{Text: text, Ranking: o.r})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, h := range res.Hits {
		ids = append(ids, h.ID)
	}
	return ids, nil
}

func (o *own) reopen(ctx context.Context) (bool, error) {
	if err := o.x.Close(); err != nil {
		return false, err
	}
	var err error
	o.x, err = search.Open(ctx, o.cfg)
	return true, err
}

// rows keeps postings as rows of a view in the encrypted store, one per term
// and document, folded in the transaction that stores the entry: its figures
// hold the work of the log too.
type rows struct {
	root  string
	log   *oplog.Log
	cfg   oplog.Config
	n     int
	words int
}

type fold struct{}

func (fold) Name() string    { return "search" }
func (fold) Version() uint32 { return 1 }
func (fold) Kinds() []string { return []string{"memory"} }

func (fold) Apply(tx oplog.Tx, e *oplog.Entry) error {
	tf := map[string]int{}
	n := 0
	for _, t := range analysis.Tokens(string(e.Body)) {
		tf[t.Term]++
		n++
	}
	ref := e.Ref()
	var v []byte
	for term, f := range tf {
		v = binary.AppendUvarint(v[:0], uint64(f))
		v = binary.AppendUvarint(v, uint64(n))
		key := append(append([]byte(term), 0), ref[:]...)
		if err := tx.Insert(key, slices.Clone(v)); err != nil {
			return err
		}
	}
	return nil
}

func openRows(ctx context.Context, root string) (engine, error) {
	r := &rows{root: filepath.Join(root, "store")}
	r.cfg = oplog.Config{
		Dir: r.root, StateDir: filepath.Join(root, "state"), EncryptionKey: make([]byte, 32), MinFree: -1,
		Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{fold{}},
	}
	var err error
	r.log, err = oplog.Open(ctx, r.cfg)
	return r, err
}

func (r *rows) name() string { return "rows" }
func (r *rows) dir() string  { return r.root }
func (r *rows) close() error { return r.log.Close() }

func (r *rows) add(ctx context.Context, docs []doc) error {
	ops := make([]oplog.Op, 0, 200)
	for i, d := range docs {
		ops = append(ops, oplog.Op{Kind: "memory", Author: "a", Version: 1, Body: []byte(d.text)})
		if len(ops) == cap(ops) || i == len(docs)-1 {
			if _, err := r.log.Append(ctx, ops...); err != nil {
				return err
			}
			ops = ops[:0]
		}
		r.n++
		r.words += 35
	}
	return nil
}

func (r *rows) search(text string) (ids []string, err error) {
	type hit struct {
		ref   string
		score float64
	}
	scores := map[string]float64{}
	err = r.log.View(func(s oplog.Snapshot) error {
		v := s.View("search")
		for _, t := range analysis.Tokens(text) {
			prefix := append([]byte(t.Term), 0)
			type post struct {
				ref     string
				tf, len float64
			}
			var list []post
			err := v.Scan(prefix, nil, false, func(key, value []byte) (bool, error) {
				f, w := binary.Uvarint(value)
				l, _ := binary.Uvarint(value[w:])
				list = append(list, post{string(key[len(prefix):]), float64(f), float64(l)})
				return true, nil
			})
			if err != nil {
				return err
			}
			df, n := float64(len(list)), float64(r.n)
			idf := math.Log(1 + (n-df+0.5)/(df+0.5))
			for _, p := range list {
				scores[p.ref] += idf * p.tf * 2.2 / (p.tf + 1.2*(0.25+0.75*p.len/(float64(r.words)/n)))
			}
		}
		return nil
	})
	var hits []hit
	for ref, s := range scores {
		hits = append(hits, hit{ref, s})
	}
	slices.SortFunc(hits, func(a, b hit) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	for _, h := range hits[:min(10, len(hits))] {
		ids = append(ids, h.ref)
	}
	return ids, err
}

func (r *rows) reopen(ctx context.Context) (bool, error) {
	if err := r.log.Close(); err != nil {
		return false, err
	}
	var err error
	r.log, err = oplog.Open(ctx, r.cfg)
	return true, errors.Join(err)
}
