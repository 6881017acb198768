#include "kernels/tune/race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/base/status.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

// Lanes note their letter; the time of a lane is next in its list, the last one for good.
class FakeTimer : public LaunchTimer {
 public:
  absl::StatusOr<double> Time(const TunedLaunch& launch) override {
    const size_t before = order_.size();
    GEMMD_RETURN_IF_ERROR(launch());
    EXPECT_EQ(order_.size(), before + 1);
    std::vector<double>& times = times_[static_cast<size_t>(order_.back() - 'a')];
    const double time = times.front();
    if (times.size() > 1) times.erase(times.begin());
    return time;
  }
  // A lane with these times.
  TunedLaunch Lane(std::vector<double> times) {
    times_.push_back(std::move(times));
    const auto letter = static_cast<char>('a' + times_.size() - 1);
    return [this, letter] {
      order_ += letter;
      return absl::OkStatus();
    };
  }
  std::string order_;

 private:
  std::vector<std::vector<double>> times_;
};

TEST(RaceTest, LanesTakeTurnsAndWarmUpsDoNotCount) {
  FakeTimer timer;
  const std::vector<TunedLaunch> lanes = {timer.Lane({900, 901, 5, 1, 3}), timer.Lane({800, 2})};
  const auto times = Race(timer, lanes, {.warmups = 2, .samples = 3}, {});
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(timer.order_, "ababababab");
  EXPECT_EQ((*times)[0].median, 3);
  EXPECT_EQ((*times)[0].fastest, 1);
  EXPECT_EQ((*times)[0].slowest, 5);
  EXPECT_EQ((*times)[0].samples, 3);
  EXPECT_EQ((*times)[1].slowest, 2);
  EXPECT_EQ(Winner(*times), 1);
}

TEST(RaceTest, MedianOfAnEvenNumberLiesBetween) {
  EXPECT_EQ(Summarize({4, 1, 3, 2}).median, 2.5);
  EXPECT_EQ(Summarize({7}).median, 7);
}

TEST(RaceTest, ALaneThatFailsFallsOut) {
  FakeTimer timer;
  int runs = 0;
  const std::vector<TunedLaunch> lanes = {
      [&runs] {
        ++runs;
        return absl::InternalError("no such cluster");
      },
      timer.Lane({7})};
  const auto times = Race(timer, lanes, {.samples = 5}, {});
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(runs, 1) << "it is not tried again";
  EXPECT_THAT(std::string((*times)[0].status.message()), HasSubstr("no such cluster"));
  EXPECT_EQ((*times)[1].samples, 5);
  EXPECT_EQ(Winner(*times), 1);
}

TEST(RaceTest, ALostContextEndsIt) {
  FakeTimer timer;
  const std::vector<TunedLaunch> lanes = {[] { return absl::DataLossError("gone"); }};
  EXPECT_TRUE(absl::IsDataLoss(Race(timer, lanes, {}, {}).status()));
}

TEST(RaceTest, DisturbedRoundsAreRepeated) {
  FakeTimer timer;
  const std::vector<TunedLaunch> lanes = {timer.Lane({9, 9, 100, 1, 200, 2, 3})};
  uint64_t requests = 0;
  int round = 0;
  TuningControl control;
  // A request comes in the first and third round after the warm-up.
  control.disturbances = [&] {
    if (++round % 2 == 0 && (round == 6 || round == 10)) ++requests;
    return requests;
  };
  const auto times = Race(timer, lanes, {.warmups = 2, .samples = 3}, control);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ((*times)[0].samples, 3);
  EXPECT_EQ((*times)[0].slowest, 3);
  EXPECT_EQ((*times)[0].fastest, 1);
}

TEST(RaceTest, ABusyDeviceEndsIt) {
  FakeTimer timer;
  const std::vector<TunedLaunch> lanes = {timer.Lane({1})};
  uint64_t requests = 0;
  TuningControl control;
  control.disturbances = [&] { return ++requests; };
  const absl::Status status = Race(timer, lanes, {.samples = 5}, control).status();
  EXPECT_EQ(ReasonOf(status), "DEVICE_BUSY");
  EXPECT_EQ(timer.order_.size(), 2u + 4 * 5);
}

TEST(RaceTest, WaitsBeforeEveryRoundAndEndsWithWhatItSays) {
  FakeTimer timer;
  const std::vector<TunedLaunch> lanes = {timer.Lane({1})};
  int waits = 0;
  TuningControl control;
  control.wait = [&] { return ++waits == 4 ? absl::CancelledError("enough") : absl::OkStatus(); };
  EXPECT_TRUE(absl::IsCancelled(Race(timer, lanes, {.warmups = 2, .samples = 9}, control).status()));
  EXPECT_EQ(timer.order_, "aaa");
}

LaneTimes Of(double median) { return {absl::OkStatus(), median, median, median, 3}; }

TEST(RaceTest, TheFirstLaneStaysUnlessAnotherIsClearlyFaster) {
  EXPECT_EQ(Winner({Of(100), Of(99.5)}), 0);
  EXPECT_EQ(Winner({Of(100), Of(98.9)}), 1);
  EXPECT_EQ(Winner({Of(100), Of(120), Of(90), Of(89.9)}), 3);
  EXPECT_EQ(Winner({Of(100)}), 0);
  EXPECT_EQ(Winner({{absl::InternalError("x"), 0, 0, 0, 0}, Of(100)}), 1);
  EXPECT_EQ(Winner({{absl::InternalError("x"), 0, 0, 0, 0}}), -1);
  EXPECT_EQ(Winner({}), -1);
}

}  // namespace
}  // namespace gemmd
