// Package carried takes the entries of one log into another: what a machine
// wrote in a mesh of its own before it joined a larger one.
//
// A carried entry is a new entry of the new log, stamped when it is written. It
// names the entry it carries, and that one's stamp, in its client op id: so it
// is written once however often the carrying is begun again, and folds and
// reads know when it really happened:
//
//	carried/<hash of the entry, 64 hex>/<its stamp, 16 hex>
//
// Domains say how their payloads are carried (Kind): ids and hashes of other
// entries become those of the entries that carry them, and names of agents
// follow the machine when its label changes. Bring does the rest.
package carried
