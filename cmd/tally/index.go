package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"tallystick/query"
	"tallystick/query/search"
	"tallystick/replica"
)

// openIndex follows the replica's log with a search index. It is kept beside
// the store, sealed like it (T3); what is damaged is folded anew.
func openIndex(ctx context.Context, h home, s settings, rep *replica.Replica, log *slog.Logger) (*search.Index, error) {
	key, err := rep.SealKey("search index")
	if err != nil {
		return nil, err
	}
	cfg := search.Config{
		Log: rep.Log(), Sources: query.Sources(), Dir: filepath.Join(h.Data, "search"), Key: key, Plain: key == nil, Logger: log,
	}
	if cfg.Vectorizer, err = s.vectorizer(); err != nil {
		return nil, err
	}
	return search.Open(ctx, cfg)
}

// vectorizer is the local model that search compares meaning with, if any.
func (s *settings) vectorizer() (search.Vectorizer, error) {
	if s.EmbedURL == "" {
		return nil, nil
	}
	e, err := search.NewEndpoint(s.EmbedURL, s.EmbedModel)
	if err != nil {
		return nil, usage("embed-url", "give a loopback address, such as http://127.0.0.1:11434/v1/embeddings, and --embed-model", "%v", err)
	}
	return e, nil
}
