package inbox

// A connection keeps the statements that it has prepared. When the schema changes
// under it, some no longer fit what they were prepared for, and fail before they have
// done anything. That says nothing about the transaction, which a fresh connection can
// run from its beginning.

// onceMore runs a whole transaction, and once more on another connection where a
// prepared statement did not fit.
func (s *Store) onceMore(transaction func() error) error {
	err := transaction()
	if err == nil || classify(err, false) != classStale {
		return err
	}
	s.pool.Reset() // the other connections have the same statements
	return transaction()
}
