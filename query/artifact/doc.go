// Package artifact keeps what agents hand to each other and what is too large
// for an event: patches, files, logs. The entry says what it is; the content
// is a blob of the log, known by its SHA-256.
//
//	h, n, err := log.PutBlob(ctx, file, size)
//	op, err := artifact.NewOp("mac:claude:tally", artifact.Artifact{Kind: "patch", Hash: h, Size: n})
//	rec, err := artifact.Get(snap, "artifact_id", id, log, nil)
//
// An artifact is listed as soon as its entry is here, and says whether its
// content is. Content is stored as given; what may go wrong with a patch is
// said in warnings.
//
// The id names the second of the entry and the beginning of the content's
// hash. Two puts of one content in one second have one id; it stands for the
// earlier by C2.
package artifact
