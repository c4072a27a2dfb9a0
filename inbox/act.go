package inbox

import "errors"

// Act is who decided something about a delivery, and why. Both are demanded: they
// stand in the audit beside what was done.
type Act struct{ Actor, Reason string }

func (a Act) check() error {
	if a.Actor == "" || a.Reason == "" || !isText(a.Actor) || !isText(a.Reason) {
		return errors.New("actor and reason are demanded, as text")
	}
	return nil
}
