package retrieval

// Fixture is filled below.
func Fixture() *Corpus { return &Corpus{Name: "fixture", Record: map[string]string{}} }
