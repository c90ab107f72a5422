// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/storagemigration/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// MigratorName is the name of the migrator.
const MigratorName = "storage-version-migrator-controller"

// Reasons of conditions in the status of StorageVersionMigrations.
const (
	reasonRunning   = "MigrationRunning"
	reasonCompleted = "MigrationCompleted"
	reasonSucceeded = "StorageVersionMigrationSucceeded"
	reasonFailed    = "StorageVersionMigrationFailed"
)

type migration = storagemigrationv1.StorageVersionMigration

type migrator struct {
	controller.Deps
	queue      *controller.Queue
	migrations listers.StorageVersionMigrationLister
}

// NewMigrator returns the controller that carries out StorageVersionMigrations.
func NewMigrator(d controller.Deps) (controller.Controller, error) {
	migrations := d.Informers.Storagemigration().V1().StorageVersionMigrations()
	c := &migrator{Deps: d, migrations: migrations.Lister()}
	c.queue = controller.NewQueue(MigratorName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(migrations.Informer(), func(old, m *migration) {
		// Queue the resource also if a migration was deleted, because its next migration may start
		// now.
		c.queue.Add(keyOf(controller.Latest(old, m)))
	})
}

// keyOf returns the resource of a StorageVersionMigration as a text. It is the key in the queue.
func keyOf(m *migration) string { return m.Spec.Resource.String() }

// Run implements controller.Controller.
func (c *migrator) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// sync continues the StorageVersionMigrations of the resource with the given key.
func (c *migrator) sync(ctx context.Context, key string) error {
	all, err := c.migrations.List(labels.Everything())
	if err != nil {
		return err
	}
	p := next(slices.DeleteFunc(slices.Clone(all), func(m *migration) bool { return keyOf(m) != key }))
	for _, m := range p.finish {
		if err := c.finish(ctx, m); err != nil {
			return err
		}
	}
	switch {
	case p.start != nil:
		return c.start(ctx, p.start)
	case p.run != nil:
		return c.run(ctx, p.run)
	}
	return nil
}

// start marks a StorageVersionMigration as running, both in the CustomResourceDefinition of its
// resource and in its own status.
func (c *migrator) start(ctx context.Context, m *migration) error {
	err := c.mark(ctx, m,
		mark{status: true, reason: reasonRunning, message: fmt.Sprintf("Migration %s is running", m.Name)})
	if err != nil {
		return err
	}
	return c.addCondition(ctx, m, storagemigrationv1.MigrationRunning, reasonRunning, "The migration is running")
}

// finish marks a StorageVersionMigration that has succeeded or failed as not running any more.
func (c *migrator) finish(ctx context.Context, m *migration) error {
	how := mark{reason: "MigrationFailed", message: "The migration has failed"}
	if is(m, storagemigrationv1.MigrationSucceeded) {
		how = mark{reason: "MigrationSucceeded", message: "The migration has succeeded", migrated: true}
	}
	if err := c.mark(ctx, m, how); err != nil {
		return err
	}
	done := m.DeepCopy()
	condition := conditionOf(done, storagemigrationv1.MigrationRunning)
	condition.Status, condition.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(c.Clock.Now())
	condition.Reason, condition.Message, condition.ObservedGeneration = reasonCompleted, "Migration completed",
		m.Generation
	return c.update(ctx, done)
}

// addCondition adds a condition with the status True to a migration, unless it has a condition of
// this type.
func (c *migrator) addCondition(ctx context.Context, m *migration,
	what storagemigrationv1.MigrationConditionType, reason, message string) error {
	told := m.DeepCopy()
	if conditionOf(told, what) != nil {
		return nil
	}
	told.Status.Conditions = append(told.Status.Conditions, metav1.Condition{
		Type: string(what), Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.Clock.Now()),
		Reason: reason, Message: message,
	})
	return c.update(ctx, told)
}

func (c *migrator) fail(ctx context.Context, m *migration, message string) error {
	return c.addCondition(ctx, m, storagemigrationv1.MigrationFailed, reasonFailed, message)
}

func (c *migrator) update(ctx context.Context, m *migration) error {
	_, err := c.Client.StoragemigrationV1().StorageVersionMigrations().UpdateStatus(ctx, m, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

// patience is how long after its creation a migration waits for a resource that is not served. The
// definition of the resource may be new, so that not all API servers serve it yet. retry is the
// interval at which the controller checks this.
const (
	patience = time.Minute
	retry    = 5 * time.Second
)

// run continues a migration. First it records the resource version at which the migration begins.
// The event of this write queues the resource again.
func (c *migrator) run(ctx context.Context, m *migration) error {
	what, err := c.find(m.Spec.Resource)
	switch {
	case err != nil:
		return fmt.Errorf("resource: %w", err)
	case what == nil && c.Clock.Since(m.CreationTimestamp.Time) < patience:
		c.Mapper.Reset()
		c.queue.AddAfter(keyOf(m), retry)
		return nil
	case what == nil:
		return c.fail(ctx, m, "resource does not exist in discovery")
	case !what.migratable:
		return c.fail(ctx, m, fmt.Sprintf("resource %q does not support discovery operations: %v",
			what.gvr.String(), needed()))
	case m.Status.ResourceVersion == "":
		return c.recordStart(ctx, m, what)
	}
	objects, err := c.objects(ctx, what, m.Status.ResourceVersion)
	if r := (refusal{}); errors.As(err, &r) {
		return c.fail(ctx, m, fmt.Sprintf("migration encountered unhandled error: %s", r.error))
	}
	if err != nil {
		return err
	}
	done := m.DeepCopy()
	switch refused, err := c.migrate(ctx, what, objects); {
	case err != nil:
		if c.setCondition(done, storagemigrationv1.MigrationRunning, reasonRunning, runningMessage(objects, err)) {
			return errors.Join(err, c.update(ctx, done))
		}
		return err
	case refused != nil:
		c.setCondition(done, storagemigrationv1.MigrationRunning, reasonRunning, runningMessage(objects, nil))
		c.setCondition(done, storagemigrationv1.MigrationFailed, reasonFailed,
			fmt.Sprintf("%d/%d not yet migrated. migration encountered unhandled error: %s", objects.left(), objects.all,
				refused))
	default:
		c.setCondition(done, storagemigrationv1.MigrationRunning, reasonRunning, runningMessage(objects, nil))
		c.setCondition(done, storagemigrationv1.MigrationSucceeded, reasonSucceeded, "Migration completed")
	}
	return c.update(ctx, done)
}

// setCondition sets a condition with the status True, and reports whether it has changed.
func (c *migrator) setCondition(m *migration, what storagemigrationv1.MigrationConditionType,
	reason, message string) bool {
	return meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: string(what),
		Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.Clock.Now()), Reason: reason, Message: message})
}

// runningMessage returns the message of the condition Running. transient is an error after which the
// migration is retried, or nil.
func runningMessage(o *objects, transient error) string {
	message := "The migration is running"
	switch {
	case o.all == 0:
	case o.left() > 0:
		message += fmt.Sprintf(", %d/%d objects not yet migrated", o.left(), o.all)
	default:
		message += fmt.Sprintf(", %d objects verified migrated", o.all)
	}
	if transient != nil {
		message += "; transient error: " + transient.Error()
	}
	return message
}

// recordStart records the present resource version in the status, as the beginning of the
// migration.
func (c *migrator) recordStart(ctx context.Context, m *migration, what *target) error {
	list, err := c.Metadata.Resource(what.gvr).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("present resource version: %w", err)
	}
	noted := m.DeepCopy()
	noted.Status.ResourceVersion = list.ResourceVersion
	return c.update(ctx, noted)
}
