package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// settings are the flags of `up` that belong to the replica. They are
// remembered, so that an owner that a verb starts listens where the last
// `up` did and peers find it again.
type settings struct {
	Label  string   `json:"label,omitempty"`
	Listen string   `json:"listen,omitempty"`
	HTTP   string   `json:"http,omitempty"`
	Static bool     `json:"static,omitempty"`
	Peers  []string `json:"peers,omitempty"`

	Toolsets string `json:"toolsets,omitempty"` // shown over HTTP

	// RefuseSecrets refuses writes that likely hold a secret.
	RefuseSecrets bool `json:"refuse_secrets,omitempty"`
	// EmbedURL and EmbedModel are a local model that search compares meaning
	// with; empty is off.
	EmbedURL   string `json:"embed_url,omitempty"`
	EmbedModel string `json:"embed_model,omitempty"`

	// AnyPort says that the port in Listen was the system's choice: it is tried
	// again, so that peers find the replica where it was, but not insisted on.
	AnyPort bool `json:"any_port,omitempty"`
}

const (
	defaultListen = "0.0.0.0:7717"
	defaultHTTP   = "127.0.0.1:0"
	httpOff       = "off"
)

func (s *settings) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&s.Label, "label", "", "name of this replica in the mesh, a-z 0-9 . _ (default: the host name)")
	fs.StringVar(&s.Listen, "listen", "", "mesh address, TCP and UDP (default "+defaultListen+", or a free port when that is taken)")
	fs.StringVar(&s.HTTP, "http", "", "loopback address for MCP over HTTP, or off (default "+defaultHTTP+")")
	fs.BoolVar(&s.Static, "static", false, "no gossip: only the given and the remembered peers")
	fs.StringVar(&s.Toolsets, "toolsets", "", "over HTTP, "+toolsetsUsage)
	fs.BoolVar(&s.RefuseSecrets, "refuse-secrets", false, "refuse writes that likely hold a key, a token or a password")
	fs.StringVar(&s.EmbedURL, "embed-url", "", "embeddings endpoint on this machine for search by meaning, such as http://127.0.0.1:11434/v1/embeddings")
	fs.StringVar(&s.EmbedModel, "embed-model", "", "model of --embed-url")
	fs.StringArrayVar(&s.Peers, "peer", nil, "address of a peer to dial, HOST:PORT; may be repeated")
}

// load fills what was neither typed nor in the environment from the
// last time.
func (s *settings) load(cmd *cobra.Command, h home) error {
	b, err := os.ReadFile(h.settingsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError("config", h.settingsFile(), err)
	}
	var old settings
	if err := json.Unmarshal(b, &old); err != nil {
		return usage(h.settingsFile(), "mend or delete it; it holds the last flags of tally up", "the settings file %s is not JSON: %v", h.settingsFile(), err)
	}
	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	if !given("label") {
		s.Label = old.Label
	}
	if !given("listen") {
		s.Listen, s.AnyPort = old.Listen, old.AnyPort
	}
	if !given("http") {
		s.HTTP = old.HTTP
	}
	if !given("static") {
		s.Static = old.Static
	}
	if !given("peer") {
		s.Peers = old.Peers
	}
	if !given("refuse-secrets") {
		s.RefuseSecrets = old.RefuseSecrets
	}
	if !given("embed-url") {
		s.EmbedURL = old.EmbedURL
	}
	if !given("embed-model") {
		s.EmbedModel = old.EmbedModel
	}
	if !given("toolsets") {
		s.Toolsets = old.Toolsets
	}
	return nil
}

// save replaces the file in one step.
func (s *settings) save(h home) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode settings: %w", err)
	}
	path := h.settingsFile()
	if old, err := os.ReadFile(path); err == nil && string(old) == string(b)+"\n" {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".up-*")
	if err != nil {
		return fmt.Errorf("save settings: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(b, '\n'))
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("save settings: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("save settings: %w", err)
	}
	return nil
}

// choosePort settles the mesh address: the one given, else the default. When
// another program has a port that nobody asked for, any free one does.
func (s *settings) choosePort() {
	if s.Listen == "" {
		s.Listen, s.AnyPort = defaultListen, true
	}
	host, port, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return // the replica says what is wrong with it
	}
	if port == "0" {
		s.AnyPort = true
		return
	}
	if !s.AnyPort {
		return
	}
	l, err := net.Listen("tcp", s.Listen)
	if err == nil {
		l.Close()
	} else if addressInUse(err) {
		s.Listen = net.JoinHostPort(host, "0")
	}
}

// remember takes over what opening the replica has settled.
func (s *settings) remember(label, listen string) {
	s.Label = label
	if s.AnyPort {
		s.Listen = listen
	}
}
